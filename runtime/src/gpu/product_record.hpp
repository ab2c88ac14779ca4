// What was measured on a device of both ways to compute products (product_path.hpp), kept in the
// user's cache: one file for each kind of device, driver and version of this library.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "gpu/product_path.hpp"

namespace anoco::gpu {

// A bank, and pictures of so many patches that are scored against it.
struct ProductSizes {
  Factors factors = Factors::parts;
  int64_t dim = 0, refs = 0, rows = 0;
};

// The median time of scoring a picture, in milliseconds.
struct ProductTimes {
  double cublas = 0;  // 0: there is no cuBLAS
  double own = 0;

  ProductPath faster() const {
    return cublas > 0 && cublas <= own ? ProductPath::cublas : ProductPath::own;
  }
};

// Returns the file for a device.
std::filesystem::path product_record_file(int ordinal);

// Adds what was measured to the file, in place of an older measurement of the same sizes. A folder
// that cannot be written is a Failure (ANOCO_STORAGE).
void record_products(const std::filesystem::path& file, const ProductSizes& sizes,
                     const ProductTimes& times);

// Returns the faster path for a bank, by the measurement with the same factors and dimension whose
// bank is nearest in size, from half to twice as large. Nothing was recorded, or the file is not a
// record: nothing.
std::optional<ProductPath> recorded_path(const std::filesystem::path& file, Factors factors,
                                         int64_t dim, int64_t refs);

}  // namespace anoco::gpu
