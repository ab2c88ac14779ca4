// Rows of features on the device, and operations on them.
#pragma once

#include "gpu/memory.hpp"

namespace anoco::gpu {

// The type of the numbers of patches.
enum class Operands { float32, float16 };

inline int64_t bytes_of(Operands type) { return type == Operands::float16 ? 2 : 4; }

// Converts ANOCO_FLOAT32 or ANOCO_FLOAT16; any other value is a Failure.
Operands operands_of(uint32_t type);

struct Patches {
  Operands type = Operands::float32;
  CUdeviceptr address = 0;

  float* floats() const { return reinterpret_cast<float*>(address); }
  Half* halves() const { return reinterpret_cast<Half*>(address); }
  Patches from(int64_t row, int64_t dim) const {
    return {type, address + CUdeviceptr(row * dim * bytes_of(type))};
  }
};

// Returns how many numbers of each row a part has (parts.cu), zeros at its end included.
inline int64_t part_dim(int64_t dim) {
  return (dim + ANOCO_GPU_PIECE - 1) / ANOCO_GPU_PIECE * ANOCO_GPU_PIECE;
}

// The following functions enqueue work.

// Converts `count` numbers from one type to the other.
void convert(const Device& device, Patches from, int64_t count, Patches to, CUstream stream);

// to[i] = from[index[i]], of one type.
void gather(const Device& device, Patches from, const int* index, int64_t rows, int64_t dim,
            Patches to, CUstream stream);

// Computes the norms of rows. `bad` receives the lowest row that cannot be scored, or
// ANOCO_GPU_NO_BAD_ROW.
void compute_norms(const Device& device, Patches rows, int64_t count, int64_t dim, float* norms,
                   int* bad, CUstream stream);

// Splits rows of float32 into parts, of which a query's lie in another order than a bank's, and
// computes the norms of what was split from those of the rows.
void split(const Device& device, Patches rows, const float* norms, int64_t count, int64_t dim,
           bool of_bank, Half* parts, float* part_norms, CUstream stream);

// Throws a Failure (ANOCO_BAD_FEATURES) that names a row, such as "query patch 3", and says what is
// wrong with its numbers, which are on the host.
[[noreturn]] void refuse_row(const std::string& name, const void* numbers, Operands type,
                             int64_t dim);

// Throws a Failure (ANOCO_CORRUPT) if an energy is not finite.
void check_energies(const float* energy, int64_t rows);

}  // namespace anoco::gpu
