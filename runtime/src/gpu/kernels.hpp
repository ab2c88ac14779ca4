// The kernels of runtime/cuda as C++ functions. Arguments are converted to the types that the
// kernels declare; gpu_kernels.h describes them.
#pragma once

#include <algorithm>
#include <cstdint>

#include "gpu/driver.hpp"
#include "gpu_kernels.h"

namespace anoco::gpu {

using Half = uint16_t;              // the bits of an IEEE binary16
using Ranked = unsigned long long;  // a similarity with its reference, see reduce.cuh

struct Grid {
  unsigned x, y, block_x, block_y;
};

inline unsigned blocks(int64_t count, int64_t size) { return unsigned((count + size - 1) / size); }

// One block for each row.
inline Grid each_row(int64_t rows) { return {unsigned(rows), 1, ANOCO_GPU_BLOCK, 1}; }
// One warp for each row.
inline Grid each_warp(int64_t rows) {
  return {blocks(rows, ANOCO_GPU_BLOCK / 32), 1, ANOCO_GPU_BLOCK, 1};
}
// A fixed number of blocks for work whose extent only the device knows, of at most `most` parts.
inline Grid any_part(int64_t most) {
  return {unsigned(std::min<int64_t>(most, 1024)), 1, ANOCO_GPU_BLOCK, 1};
}
// One block for each tile of products by tensor cores.
inline Grid each_product_tile(int64_t rows, int64_t refs) {
  return {blocks(rows, ANOCO_GPU_PRODUCT_TILE) * blocks(refs, ANOCO_GPU_PRODUCT_TILE), 1,
          ANOCO_GPU_BLOCK, 1};
}
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
  Kernel<const float*, const float*, int, int, int, int, Half*, float*> parts_f32{
      "anoco_parts_f32"};
  Kernel<const float*, long long, Half*> to_half{"anoco_to_half"};
  Kernel<const Half*, long long, float*> to_float{"anoco_to_float"};
  Kernel<const float*, const int*, int, int, float*> gather_f32{"anoco_gather_f32"};
  Kernel<const Half*, const int*, int, int, Half*> gather_f16{"anoco_gather_f16"};
  Kernel<const float*, const int*, int, float, float*> scatter_f32{"anoco_scatter_f32"};
  Kernel<const int*, const int*, int, int, int*> scatter_i32{"anoco_scatter_i32"};
  Kernel<const float*, const float*, const float*, int, int, Ranked*> candidates{
      "anoco_candidates"};
  Kernel<const Half*, const float*, const Half*, const float*, int, int, int, Ranked*> qr_top2_f16{
      "anoco_qr_top2_f16"};
  Kernel<const Half*, const int*, const int*, int, int, const Half*, int, int, float*> products_f16{
      "anoco_products_f16"};
  Kernel<const float*, int, const float*, int, int, float*> products_f32{"anoco_products_f32"};
  template <class Number>
  using Walk =
      Kernel<const float*, Ranked*, const Number*, const float*, const Number*, const float*,
             const Half*, const float*, const Half*, const float*, const float*, int, int, int, int,
             int*, float*, Ranked*, int*, int*, unsigned*, int*, float*>;
  Walk<float> walk_f32{"anoco_walk_f32"};
  Walk<Half> walk_f16{"anoco_walk_f16"};
  template <class Number>
  using PullEnergy = Kernel<const Number*, const float*, const Number*, const float*, const Ranked*,
                            const int*, double, float, int, int, int, float*>;
  PullEnergy<float> pull_energy_f32{"anoco_pull_energy_f32"};
  PullEnergy<Half> pull_energy_f16{"anoco_pull_energy_f16"};
  template <class Number>
  using DenseLimit =
      Kernel<const float*, const float*, const float*, const Number*, const float*, const float*,
             const int*, const float*, const int*, const int*, int, int, int, int, int, unsigned*>;
  DenseLimit<float> dense_limit_f32{"anoco_dense_limit_f32"};
  DenseLimit<Half> dense_limit_f16{"anoco_dense_limit_f16"};
  Kernel<float*, const float*, const float*, const float*, const float*, const int*,
         const unsigned*, const int*, const int*, int, int, int, float, int, double*, int*>
      dense_weights{"anoco_dense_weights"};
  template <class Number>
  using DensePull =
      Kernel<const float*, const Number*, const int*, const int*, int, int, int, int, int, float*>;
  DensePull<float> dense_pull_f32{"anoco_dense_pull_f32"};
  DensePull<Half> dense_pull_f16{"anoco_dense_pull_f16"};
  template <class Number>
  using DenseEnergy = Kernel<const Number*, const float*, const float*, const double*, const int*,
                             const int*, int, int, double, int, int, float*>;
  DenseEnergy<float> dense_energy_f32{"anoco_dense_energy_f32"};
  DenseEnergy<Half> dense_energy_f16{"anoco_dense_energy_f16"};
  Kernel<float*, const uint8_t*, const float*, int> subtract_baseline{"anoco_subtract_baseline"};
  Kernel<const float*, const uint8_t*, int, int, double, float*> smooth{"anoco_smooth"};
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
    all(norms_f32, norms_f16, parts_f32, to_half, to_float, gather_f32, gather_f16, scatter_f32,
        scatter_i32, candidates, qr_top2_f16, products_f16, products_f32, walk_f32, walk_f16,
        pull_energy_f32, pull_energy_f16, dense_limit_f32, dense_limit_f16, dense_weights,
        dense_pull_f32, dense_pull_f16, dense_energy_f32, dense_energy_f16, subtract_baseline,
        smooth, pool, map_across, map_down, resize_across, resize_down, fill);
  }
};

}  // namespace anoco::gpu
