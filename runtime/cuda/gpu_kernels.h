// The names, parameters and results of the kernels of this folder. It is read by the kernels
// themselves, by the host code that launches them (src/gpu), and by the emulation (tests/simt).
// Names are plain C, so that a module finds them; sizes are int, and products of sizes are computed
// in 64 bits.
//
// Scoring (DESIGN section 3) works on a tile of `rows` query patches against `refs` references of
// `dim` numbers. `products` is Q R^T as the GEMM writes it: raw, float32, row-major, rows x refs.
// All similarities are products[i][j] / (q_norm[i] r_norm[j]) in float32, computed by the one
// function in similarity.cuh, so that every kernel decides by the same bits.
#pragma once

enum {
  ANOCO_GPU_BLOCK = 256,  // threads of every one-dimensional block
  ANOCO_GPU_TILE = 16,    // threads each way of every two-dimensional block
  ANOCO_GPU_LARGEST = 5,  // energies that `top5` averages
  ANOCO_GPU_NO_BAD_ROW = 0x7fffffff
};

#define ANOCO_GPU_KERNELS(X) \
  X(anoco_norms_f32)         \
  X(anoco_norms_f16)         \
  X(anoco_to_half)           \
  X(anoco_to_float)          \
  X(anoco_gather_f32)        \
  X(anoco_gather_f16)        \
  X(anoco_scatter_f32)       \
  X(anoco_scatter_i32)       \
  X(anoco_anchor)            \
  X(anoco_violator)          \
  X(anoco_aggregate_f32)     \
  X(anoco_aggregate_f16)     \
  X(anoco_energy_f32)        \
  X(anoco_energy_f16)        \
  X(anoco_subtract_baseline) \
  X(anoco_pool)              \
  X(anoco_map_across)        \
  X(anoco_map_down)          \
  X(anoco_resize_across)     \
  X(anoco_resize_down)       \
  X(anoco_fill)

/* One block per row unless stated otherwise. `half` is IEEE binary16.

norms.cu
  anoco_norms_f32(const float* x, int rows, int dim, float* norms, int* bad)
  anoco_norms_f16(const half* x, ...)
      norms[i] = |x_i|. *bad becomes the lowest row with NaN, infinity or a norm outside of 1e-10
      to 1e10 (atomicMin; the host sets ANOCO_GPU_NO_BAD_ROW before).
convert.cu (one thread per number)
  anoco_to_half(const float* x, long long count, half* out)     to nearest even
  anoco_to_float(const half* x, long long count, float* out)
gather.cu
  anoco_gather_f32(const float* from, const int* index, int rows, int dim, float* out)
  anoco_gather_f16(const half* from, ...)
      out[i] = from[index[i]]; a negative index leaves out[i] alone.
  anoco_scatter_f32(const float* from, const int* index, int rows, float none, float* out)
  anoco_scatter_i32(const int* from, ..., int none, int* out)
      (one thread per entry of out) out[i] = index[i] >= 0 ? from[index[i]] : none
anchor.cu
  anoco_anchor(const float* products, const float* q_norm, const float* r_norm, int rows, int refs,
               int* anchor, float* best)
      the argmax of the similarities, the lowest index on a tie, and its similarity
violator.cu
  anoco_violator(const float* products, const float* anchor_products, int gram, const float* q_norm,
                 const float* r_norm, const int* anchor, const float* best, int rows, int refs,
                 float* limit)
      limit[i] = t_i = max{ s_ij : j != anchor, a_ij <= best[i] }, minus infinity if there is none.
      anchor_products is r_anchor R^T: row i of it (gram = 0), or row anchor[i] of the bank's whole
      Gram matrix (gram = 1).
aggregate.cu
  anoco_aggregate_f32(const float* products, const float* q, const float* q_norm, const float* bank,
                      const float* r_norm, const int* anchor, const float* limit, double lambda,
                      float floor, int rows, int refs, int dim, float* drift, float* moved,
                      int* neighbors)
  anoco_aggregate_f16(const float* products, const half* q, const float* q_norm, const half* bank,
                      ...)
      N(i) = {anchor} u { j : s_ij > limit[i] }; weights are divided by lambda + d_i before they are
      used; drift = sum w (r - q), moved = (lambda q + sum w r), each over lambda + d_i. In index
      order, so that results do not depend on the launch. Exact for any number of neighbors.
energy.cu
  anoco_energy_f32(const float* q, const float* q_norm, const float* drift, const float* moved,
                   int rows, int dim, int metric, float* energy)
  anoco_energy_f16(const half* q, ...)
      metric as ANOCO_METRIC_...; moved of length zero: 1 - cos = 1; NaN stays NaN.
baseline.cu (one thread per patch)
  anoco_subtract_baseline(float* energy, const unsigned char* scored, const float* baseline, int
patches) max(energy - baseline, 0) where scored, else 0; baseline may be null: then only the zeros.
pool.cu (one block)
  anoco_pool(const float* energy, const unsigned char* scored, int patches, int top, float* score,
             int* peak)
      the mean of the `top` largest scored energies (1: the maximum), and the lowest patch that has
      the largest; score NaN where any scored energy is NaN or nothing is scored.
anomaly_map.cu (two-dimensional blocks; x is the pixel, y the row)
  anoco_map_across(const float* grid, const unsigned char* scored, const int* first,
                   const float* weights, int reach, int rows, int cols, int width, float* out)
  anoco_map_down(const float* rows_energy, const float* rows_weight, const unsigned char* scored,
                 const int* first, const float* weights, int reach, int cols, int width, int height,
                 int stride, float* out)
      the two passes of src/picture/anomaly_map.cpp with the same tables: grid null gives the
weights of the scored patches, scored null scores all, rows_weight null divides by nothing.
resize.cu (two-dimensional blocks; x is the pixel, y the row)
  anoco_resize_across(const unsigned char* image, const unsigned char* chroma, int format,
                      long long stride, long long chroma_stride, int width, int height,
                      const int* first, const int* weights, int reach, int channels,
                      unsigned char* out, long long out_stride)
  anoco_resize_down(the same)
      the two passes of src/picture/resize.cpp with the same tables, bit for bit, in either order:
      `across` makes the picture `width` wide and leaves its `height` rows, `down` makes it `height`
      high and leaves its `width`. format as ANOCO_RGB... is that of what is read: the camera's, or
      of what the first pass wrote: ANOCO_RGB (channels = 3), or for a gray picture ANOCO_GREY
      (channels = 1). The last pass has channels = 3.
  anoco_fill(unsigned char* out, int width, int height, int left, int top, int inner_width,
             int inner_height, int red, int green, int blue)
      fills the area beside a letterboxed picture
*/
