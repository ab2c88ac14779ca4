#include "gpu/patches.hpp"

#include <cmath>

#include "buffer.hpp"
#include "scorer/bank.hpp"

namespace anoco::gpu {

Operands operands_of(uint32_t type) {
  if (type != ANOCO_FLOAT32 && type != ANOCO_FLOAT16)
    fail(ANOCO_INVALID_ARGUMENT,
         "type is " + std::to_string(type) + ": use ANOCO_FLOAT32 or ANOCO_FLOAT16");
  return type == ANOCO_FLOAT16 ? Operands::float16 : Operands::float32;
}

void convert(const Device& device, Patches from, int64_t count, Patches to, CUstream stream) {
  const Kernels& k = device.kernels();
  if (to.type == Operands::float16)
    k.to_half(each_number(count), stream, from.floats(), count, to.halves());
  else
    k.to_float(each_number(count), stream, from.halves(), count, to.floats());
}

void gather(const Device& device, Patches from, const int* index, int64_t rows, int64_t dim,
            Patches to, CUstream stream) {
  const Kernels& k = device.kernels();
  if (from.type == Operands::float16)
    k.gather_f16(each_row(rows), stream, from.halves(), index, int(rows), int(dim), to.halves());
  else
    k.gather_f32(each_row(rows), stream, from.floats(), index, int(rows), int(dim), to.floats());
}

void compute_norms(const Device& device, Patches rows, int64_t count, int64_t dim, float* norms,
                   int* bad, CUstream stream) {
  const Kernels& k = device.kernels();
  driver().cuMemsetD32Async(address_of(bad), ANOCO_GPU_NO_BAD_ROW, 1, stream);
  if (rows.type == Operands::float16)
    k.norms_f16(each_row(count), stream, rows.halves(), int(count), int(dim), norms, bad);
  else
    k.norms_f32(each_row(count), stream, rows.floats(), int(count), int(dim), norms, bad);
}

void split(const Device& device, Patches rows, const float* norms, int64_t count, int64_t dim,
           bool of_bank, Half* parts, float* part_norms, CUstream stream) {
  device.kernels().parts_f32(each_row(count), stream, rows.floats(), norms, int(count), int(dim),
                             int(part_dim(dim)), int(of_bank), parts, part_norms);
}

void refuse_row(const std::string& name, const void* numbers, Operands type, int64_t dim) {
  Buffer<float> wide{dim};
  const float* row = static_cast<const float*>(numbers);
  if (type == Operands::float16) {
    kernels().widen(static_cast<const uint16_t*>(numbers), dim, wide.data());
    row = wide.data();
  }
  const char* why = norm_problem(kernels().squares(row, dim));
  fail(ANOCO_BAD_FEATURES,
       name + " " +
           (why != nullptr ? why : "does not fit into FP16: score with ANOCO_FLOAT32 operands"));
}

void check_energies(const float* energy, int64_t rows) {
  for (int64_t i = 0; i < rows; ++i)
    if (!std::isfinite(energy[i]))
      fail(ANOCO_CORRUPT,
           "the energy of query patch " + std::to_string(i) +
               " is not a number: the bank's memory was changed",
           "keep the features as they are while a scorer uses them");
}

}  // namespace anoco::gpu
