// How the products of queries and references are computed on a device.
//
// `cublas` writes Q R^T to memory, for any factors. `own` are the kernels of this library: for
// factors of half precision qr_top2.cu, which keeps candidates only, so that Q R^T never reaches
// memory; for plain float32 a plain product. Both are exact, and either may be the faster.
#pragma once

#include <cstdint>

#include "gpu/device.hpp"
#include "gpu/patches.hpp"

namespace anoco::gpu {

enum class ProductPath { cublas, own };

// What is multiplied; sums are always float32. Features of FP16 themselves; features of float32 as
// parts of half precision, which are three products (parts.cu), or themselves.
enum class Factors { float16, parts, plain_float32 };

// Returns the factors of features: those of float32 are multiplied as parts, or as plain float32
// where the environment variable ANOCO_EDGE_CUDA_FLOAT32 is `plain`.
Factors factors_of(Operands features);

inline Operands features_of(Factors factors) {
  return factors == Factors::float16 ? Operands::float16 : Operands::float32;
}

// Returns how many numbers a row of parts has, of features of so many; 0: there are no parts.
inline int64_t parts_dim(Factors factors, int64_t dim) {
  return factors == Factors::parts ? 3 * part_dim(dim) : 0;
}

// Returns whether Q R^T is written to memory.
inline bool keeps_products(ProductPath path, Factors factors) {
  return path == ProductPath::cublas || factors == Factors::plain_float32;
}

// Returns the path that the caller asks for, ANOCO_PRODUCTS_CUBLAS or ANOCO_PRODUCTS_OWN, of which
// the first fails where there is no cuBLAS. ANOCO_PRODUCTS_AUTO: what was the faster on this device
// with a bank of about this size (product_record.hpp), or cuBLAS where nothing was measured, but
// only where it can be loaded.
ProductPath choose_path(uint32_t wanted, int ordinal, Factors factors, int64_t dim, int64_t refs);

}  // namespace anoco::gpu
