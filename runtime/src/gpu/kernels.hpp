// The kernels of runtime/cuda as C++ functions. Arguments are converted to the types that the
// kernels declare; gpu_kernels.h describes them.
#pragma once

#include <cstdint>

#include "gpu/driver.hpp"
#include "gpu_kernels.h"

namespace anoco::gpu {

using Half = uint16_t;  // the bits of an IEEE binary16

struct Grid {
  unsigned x, y, block_x, block_y;
};

inline unsigned blocks(int64_t count, int64_t size) { return unsigned((count + size - 1) / size); }

// One block for each row.
inline Grid each_row(int64_t rows) { return {unsigned(rows), 1, ANOCO_GPU_BLOCK, 1}; }
// One thread for each of `count` numbers.
inline Grid each_number(int64_t count) {
  return {blocks(count, ANOCO_GPU_BLOCK), 1, ANOCO_GPU_BLOCK, 1};
}
// One thread for each pixel.
inline Grid each_pixel(int64_t width, int64_t height) {
  return {blocks(width, ANOCO_GPU_TILE), blocks(height, ANOCO_GPU_TILE), ANOCO_GPU_TILE,
          ANOCO_GPU_TILE};
}

template <class... Arguments>
class Kernel {
 public:
  explicit Kernel(const char* name) : name_(name) {}

  void bind(const Driver& driver, CUmodule module) {
    driver.cuModuleGetFunction(&function_, module, name_);
  }
  // Enqueues the kernel.
  void operator()(Grid grid, CUstream stream, Arguments... arguments) const {
    void* values[] = {&arguments...};
    driver().cuLaunchKernel(function_, grid.x, grid.y, 1, grid.block_x, grid.block_y, 1, 0, stream,
                            values, nullptr);
  }
  // Calls visit(name, sizes of the arguments, number of arguments).
  template <class Visit>
  void describe(Visit&& visit) const {
    const size_t sizes[] = {sizeof(Arguments)...};
    visit(name_, sizes, sizeof...(Arguments));
  }

 private:
  const char* name_;
  CUfunction function_ = nullptr;
};

struct Kernels {
  Kernel<const float*, int, int, float*, int*> norms_f32{"anoco_norms_f32"};
  Kernel<const Half*, int, int, float*, int*> norms_f16{"anoco_norms_f16"};
  Kernel<const float*, long long, Half*> to_half{"anoco_to_half"};
  Kernel<const Half*, long long, float*> to_float{"anoco_to_float"};
  Kernel<const float*, const int*, int, int, float*> gather_f32{"anoco_gather_f32"};
  Kernel<const Half*, const int*, int, int, Half*> gather_f16{"anoco_gather_f16"};
  Kernel<const float*, const int*, int, float, float*> scatter_f32{"anoco_scatter_f32"};
  Kernel<const int*, const int*, int, int, int*> scatter_i32{"anoco_scatter_i32"};
  Kernel<const float*, const float*, const float*, int, int, int*, float*> anchor{"anoco_anchor"};
  Kernel<const float*, const float*, int, const float*, const float*, const int*, const float*, int,
         int, float*>
      violator{"anoco_violator"};
  Kernel<const float*, const float*, const float*, const float*, const float*, const int*,
         const float*, double, float, int, int, int, float*, float*, int*>
      aggregate_f32{"anoco_aggregate_f32"};
  Kernel<const float*, const Half*, const float*, const Half*, const float*, const int*,
         const float*, double, float, int, int, int, float*, float*, int*>
      aggregate_f16{"anoco_aggregate_f16"};
  Kernel<const float*, const float*, const float*, const float*, int, int, int, float*> energy_f32{
      "anoco_energy_f32"};
  Kernel<const Half*, const float*, const float*, const float*, int, int, int, float*> energy_f16{
      "anoco_energy_f16"};
  Kernel<float*, const uint8_t*, const float*, int> subtract_baseline{"anoco_subtract_baseline"};
  Kernel<const float*, const uint8_t*, int, int, float*, int*> pool{"anoco_pool"};
  Kernel<const float*, const uint8_t*, const int*, const float*, int, int, int, int, float*>
      map_across{"anoco_map_across"};
  Kernel<const float*, const float*, const uint8_t*, const int*, const float*, int, int, int, int,
         int, float*>
      map_down{"anoco_map_down"};
  using Resize = Kernel<const uint8_t*, const uint8_t*, int, long long, long long, int, int,
                        const int*, const int*, int, int, uint8_t*, long long>;
  Resize resize_across{"anoco_resize_across"}, resize_down{"anoco_resize_down"};
  Kernel<uint8_t*, int, int, int, int, int, int, int, int, int> fill{"anoco_fill"};

  template <class Visit>
  void for_each(Visit&& visit) {
    const auto all = [&](auto&... kernels) { (visit(kernels), ...); };
    all(norms_f32, norms_f16, to_half, to_float, gather_f32, gather_f16, scatter_f32, scatter_i32,
        anchor, violator, aggregate_f32, aggregate_f16, energy_f32, energy_f16, subtract_baseline,
        pool, map_across, map_down, resize_across, resize_down, fill);
  }
};

}  // namespace anoco::gpu
