// How the products of queries and references are computed on a device.
//
// `cublas` writes Q R^T to memory, for any operands. `own` are the kernels of this library: for
// FP16 operands qr_top2.cu, which keeps candidates only, so that Q R^T never reaches memory; for
// float32 a plain product. Both are exact, and either may be the faster.
#pragma once

#include <cstdint>

#include "gpu/device.hpp"
#include "gpu/patches.hpp"

namespace anoco::gpu {

enum class ProductPath { cublas, own };

// Returns whether Q R^T is written to memory.
inline bool keeps_products(ProductPath path, Operands operands) {
  return path == ProductPath::cublas || operands == Operands::float32;
}

// Returns the path that the caller asks for, ANOCO_PRODUCTS_CUBLAS or ANOCO_PRODUCTS_OWN, of which
// the first fails where there is no cuBLAS. ANOCO_PRODUCTS_AUTO: what was the faster on this device
// with a bank of about this size (product_record.hpp), or cuBLAS where nothing was measured, but
// only where it can be loaded.
ProductPath choose_path(uint32_t wanted, int ordinal, Operands operands, int64_t dim, int64_t refs);

}  // namespace anoco::gpu
