// AVX-512 F, BW, DQ, VL.
#include "kernels/avx512_vector.hpp"
#include "kernels/generic.hpp"

namespace anoco {

const Kernels kAvx512Kernels = make_kernels<V, 12, 2>("avx512");

}  // namespace anoco
