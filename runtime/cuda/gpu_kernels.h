// The names, parameters and results of the kernels of this folder. It is read by the kernels
// themselves, by the host code that launches them (src/gpu), and by the emulation (tests/simt).
// Names are plain C, so that a module finds them; sizes are int, and products of sizes are computed
// in 64 bits.
//
// Scoring (DESIGN section 3) works on a tile of `rows` query patches against `refs` references of
// `dim` numbers. `products` is Q R^T as the GEMM writes it: raw, float32, row-major, rows x refs.
// All similarities are products[i][j] / (q_norm[i] r_norm[j]) in float32, computed by the one
// function in similarity.cuh, so that every kernel decides by the same bits.
//
// A Ranked (reduce.cuh, 64 bits) is a similarity with its reference. The kernels run in this order:
// norms, candidates, walk, pull_energy, and for rows that walk put on the list of dense rows
// dense_limit, dense_weights, dense_pull and dense_energy, which do nothing if the list is empty.
//
// Without cuBLAS there is no GEMM. In half precision qr_top2 takes the place of candidates and
// keeps no products, walk gets null for them, and those of dense rows come from anoco_products_f16.
//
// Rows of float32 are multiplied as parts of half precision (parts.cu): `factors` are rows of half
// precision whose products these are, of factor_dim numbers, and factor norms those by which
// products are divided. Of features of half precision they are the features and their norms. Where
// plain float32 is asked for, factor norms are the norms of the features, there are no other
// factors, and without cuBLAS all products come from anoco_products_f32.
#pragma once

enum {
  ANOCO_GPU_BLOCK = 256,         // threads of every one-dimensional block
  ANOCO_GPU_TILE = 16,           // threads each way of every two-dimensional block
  ANOCO_GPU_GROUP = 64,          // references of which two are candidates
  ANOCO_GPU_PRODUCT_TILE = 128,  // rows, and references, of a tile of products by tensor cores
  ANOCO_GPU_PIECE = 8,           // numbers of half precision that are copied at a time
  // Neighbors that are listed for a row. A row with more is dense. 95 of 100 patches of real
  // features have up to 78; each of them is a dot product, and a dense row is two of them for every
  // reference of the bank.
  ANOCO_GPU_LISTED = 128,
  // Groups of a row of which more than two candidates are looked at, where products are not kept:
  // each takes the products with 64 references once more. A row with more is dense.
  ANOCO_GPU_AGAIN = 16,
  ANOCO_GPU_TILE_ROWS = 64,  // of a product of dense rows
  ANOCO_GPU_TILE_COLUMNS = 32,
  ANOCO_GPU_LARGEST = 5,  // energies that `top5` averages
  ANOCO_GPU_NO_BAD_ROW = 0x7fffffff,
  // Added to the format of a picture in NV12:
  ANOCO_GPU_BT709 = 256,
  ANOCO_GPU_FULL_RANGE = 512
};

#define ANOCO_GPU_KERNELS(X) \
  X(anoco_norms_f32)         \
  X(anoco_norms_f16)         \
  X(anoco_parts_f32)         \
  X(anoco_to_half)           \
  X(anoco_to_float)          \
  X(anoco_gather_f32)        \
  X(anoco_gather_f16)        \
  X(anoco_scatter_f32)       \
  X(anoco_scatter_i32)       \
  X(anoco_candidates)        \
  X(anoco_qr_top2_f16)       \
  X(anoco_products_f16)      \
  X(anoco_products_f32)      \
  X(anoco_walk_f32)          \
  X(anoco_walk_f16)          \
  X(anoco_pull_energy_f32)   \
  X(anoco_pull_energy_f16)   \
  X(anoco_dense_limit_f32)   \
  X(anoco_dense_limit_f16)   \
  X(anoco_dense_weights)     \
  X(anoco_dense_pull_f32)    \
  X(anoco_dense_pull_f16)    \
  X(anoco_dense_energy_f32)  \
  X(anoco_dense_energy_f16)  \
  X(anoco_subtract_baseline) \
  X(anoco_smooth)            \
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
parts.cu
  anoco_parts_f32(const float* x, const float* norms, int rows, int dim, int part_dim, int of_bank,
                  half* parts, float* part_norms)
      parts[i]: 3 part_dim numbers, the parts of x_i times a power of two, for a query or for the
      bank; zeros beyond dim. part_dim is a multiple of ANOCO_GPU_PIECE. part_norms[i]: norms[i]
      times that power.
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
candidates.cu
  anoco_candidates(const float* products, const float* q_norm, const float* r_norm, int rows,
                   int refs, Ranked* candidates)
      rows x groups x 2: the two largest similarities of each ANOCO_GPU_GROUP references with their
      places, the lowest index on a tie; 0: there is none.
qr_top2.cu (of factors; one block per tile of ANOCO_GPU_PRODUCT_TILE rows and as many references)
  anoco_qr_top2_f16(const half* q, const float* q_norm, const half* bank, const float* r_norm,
                    int rows, int refs, int dim, Ranked* candidates)
      the same from the patches themselves, by tensor cores
products.cu (any number of blocks)
  anoco_products_f16(const half* left, const int* list, const int* count, int first, int room,
                     const half* bank, int refs, int dim, float* products)
      products[n][j]: of the rows list[n] of left, n < *count - first and n < room, with the
      references, with the bits by which qr_top2 decides. list null: of the `room` rows themselves.
  anoco_products_f32(const float* left, int rows, const float* bank, int refs, int dim,
                     float* products)
      products[i][j] of all rows, every sum rounded
walk.cu (one warp per row)
  anoco_walk_f32(const float* products, Ranked* candidates, const float* q, const float* q_norm,
                 const float* bank, const float* r_norm, const half* q_factors,
                 const float* q_factor_norm, const half* bank_factors, const float* r_factor_norm,
                 const float* gram, int rows, int refs, int dim, int factor_dim, int* anchor,
                 float* best, Ranked* listed, int* neighbors, int* dense_rows, unsigned* limit,
                 int* dense_count, float* again)
  anoco_walk_f16(..., const half* q, ..., const half* bank, ...)
      the argmax of the similarities, the lowest index on a tie, and its similarity; listed[i]: the
      neighbors, ANOCO_GPU_LISTED per row, in falling order, the anchor first; neighbors[i]: how
      many. A row with more has neighbors[i] = 0 and is appended to dense_rows, in any order;
      dense_count, 0 before, counts them. gram: the products of the bank with itself, or null:
      then references are compared with the anchor by dot products of the features themselves.
      Takes the candidates apart. products null: they were not kept; those with a group of
      references are computed again where they are needed, with the bits of qr_top2, and stay in
      `again`, ANOCO_GPU_AGAIN groups per row. A row that needs more is dense, too.
pull_energy.cu
  anoco_pull_energy_f32(const float* q, const float* q_norm, const float* bank, const float* r_norm,
                        const Ranked* listed, const int* neighbors, double lambda, float floor,
                        int rows, int dim, int metric, float* energy)
  anoco_pull_energy_f16(const half* q, const float* q_norm, const half* bank, ...)
      the energy of rows with neighbors[i] > 0. Weights are divided by lambda + d_i before they are
      used: drift = sum w (r - q), f~ = lambda q + sum w r, each over lambda + d_i. metric as
      ANOCO_METRIC_...; f~ of length zero: 1 - cos = 1; NaN stays NaN.
dense_limit.cu (any number of blocks, as the following)
      All take a part of the list: the rows dense_rows[n], n < *dense_count - first and n < room.
      packed: their products, and then their weights, are the n-th rows of `products`, else those of
      the row.
  anoco_dense_limit_f32(const float* products, const float* q_factor_norm,
                        const float* r_factor_norm, const float* bank, const float* bank_norm,
                        const float* gram, const int* anchor, const float* best,
                        const int* dense_rows, const int* dense_count, int first, int room,
                        int packed, int refs, int dim, unsigned* limit)
  anoco_dense_limit_f16(..., const half* bank, ...)
      limit[n], of the n-th dense row, becomes the rank (reduce.cuh) of
      t_i = max{ s_ij : j != anchor, a_ij <= best[i] }; minus infinity if there is none. Half
      precision: a_ij by tensor cores. bank_norm: of what gram, or else bank, has the products of.
dense_weights.cu
  anoco_dense_weights(float* products, const float* q_norm, const float* r_norm,
                      const float* q_factor_norm, const float* r_factor_norm, const int* anchor,
                      const unsigned* limit, const int* dense_rows, const int* dense_count,
                      int first, int room, int packed, float floor, int refs, double* totals,
                      int* neighbors)
      products[i][j] = w_ij / d_i for neighbors, N(i) = {anchor} u { j : s_ij > t_i }, else 0;
      totals[n] = d_i; neighbors[i] = |N(i)|.
dense_pull.cu
  anoco_dense_pull_f32(const float* weights, const float* bank, const int* dense_rows,
                       const int* dense_count, int first, int room, int packed, int refs, int dim,
                       float* mean)
  anoco_dense_pull_f16(const float* weights, const half* bank, ...)
      mean[n] = sum_j weights[i][j] r_j. In an order that does not depend on the list or the grid.
      Half precision: by tensor cores, of weights from 0 to 1.
dense_energy.cu
  anoco_dense_energy_f32(const float* q, const float* q_norm, const float* mean,
                         const double* totals, const int* dense_rows, const int* dense_count,
                         int first, int room, double lambda, int dim, int metric, float* energy)
  anoco_dense_energy_f16(const half* q, ...)
      as anoco_pull_energy, for dense rows
baseline.cu (one thread per patch)
  anoco_subtract_baseline(float* energy, const unsigned char* scored, const float* baseline, int
patches) max(energy - baseline, 0) where scored, else 0; baseline may be null: then only the zeros.
smooth.cu (one thread per patch)
  anoco_smooth(const float* energy, const unsigned char* scored, int rows, int cols, double side,
               float* out)
      a 3x3 Gaussian over the scored patches: weight 1 for the patch itself, `side` beside it,
      side^2 at the corners, scaled to a sum of one; 0 where a patch is not scored; NaN spreads.
pool.cu (one block)
  anoco_pool(const float* energy, const unsigned char* scored, int patches, int top, float* score,
             int* peak)
      the mean of the `top` largest scored energies (1: the maximum), and the lowest patch that has
      the largest; score NaN where any scored energy is NaN or nothing is scored. peak may be null.
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
      high and leaves its `width`. format as ANOCO_RGB... is that of what is read: the camera's
      (plus ANOCO_GPU_BT709, ANOCO_GPU_FULL_RANGE), or of what the first pass wrote: ANOCO_RGB
(channels = 3), or for a gray picture ANOCO_GREY (channels = 1). The last pass has channels = 3.
  anoco_fill(unsigned char* out, int width, int height, int left, int top, int inner_width,
             int inner_height, int red, int green, int blue)
      fills the area beside a letterboxed picture
*/
