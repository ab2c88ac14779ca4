// Calls kernels as functions, with the launch parameters that they need.
#pragma once

#include "gpu_kernels.h"
#include "simt.hpp"
#include "tests/check.h"

namespace simt {

inline unsigned blocks(int64_t count, int64_t size) { return unsigned((count + size - 1) / size); }

template <class... Values>
void run_in(const char* name, Size grid, Size block, Values... values) {
  const Kernel* kernel = find(name);
  CHECK(kernel != nullptr);
  CHECK((kernel->parameters == std::vector<size_t>{sizeof(Values)...}));
  void* const places[] = {&values...};
  launch(*kernel, grid, block, 0, places);
}

// One block per row.
template <class... Values>
void run_rows(const char* name, int rows, Values... values) {
  run_in(name, {unsigned(rows)}, {ANOCO_GPU_BLOCK}, values...);
}

// One warp per row.
template <class... Values>
void run_warps(const char* name, int rows, Values... values) {
  run_in(name, {blocks(rows, ANOCO_GPU_BLOCK / 32)}, {ANOCO_GPU_BLOCK}, values...);
}

// One thread per entry.
template <class... Values>
void run_each(const char* name, int64_t count, Values... values) {
  run_in(name, {blocks(count, ANOCO_GPU_BLOCK)}, {ANOCO_GPU_BLOCK}, values...);
}

// One thread per pixel.
template <class... Values>
void run_pixels(const char* name, int64_t width, int64_t height, Values... values) {
  run_in(name, {blocks(width, ANOCO_GPU_TILE), blocks(height, ANOCO_GPU_TILE)},
         {ANOCO_GPU_TILE, ANOCO_GPU_TILE}, values...);
}

}  // namespace simt
