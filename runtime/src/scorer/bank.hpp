// The reference patches: raw features in float32 or float16, which are read in place.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "anoco_edge.h"
#include "buffer.hpp"
#include "kernels/kernels.hpp"
#include "scorer/cone.hpp"
#include "scorer/projection.hpp"

namespace anoco {

// Outside this range float32 cannot hold the squares that the method needs. A row of zeros is below
// it.
constexpr double kLeastNorm = 1e-10, kMostNorm = 1e10;

// Says why a row with this sum of squares cannot be scored, or returns nullptr.
const char* norm_problem(double squares);

class Bank {
 public:
  explicit Bank(const anoco_bank_options& options);

  int64_t rows() const { return rows_; }
  int64_t dim() const { return dim_; }
  bool half() const { return half_; }  // the type of its numbers
  double norm(int64_t row) const { return norms_[row]; }
  // Returns the norm in the middle; of an even number of rows, the mean of the middle two.
  double median_norm() const;
  float inverse_norm(int64_t row) const { return inverses_[row]; }
  const float* norms() const { return norms_.data(); }
  // The inverse norm of every row, followed by zeros up to a whole number of blocks.
  const float* inverse_norms() const { return inverses_.data(); }

  // Computed when it is first needed, which is when a scorer is made; a device does not need it.
  const Projection& projection() const;
  bool projected() const { return projected_; }
  // Computed when a scorer is made, too.
  const Cone& cone() const;

  float dot(const float* x, int64_t row) const {
    return half_ ? k_.dot_half(x, halves(row), dim_) : k_.dot(x, floats(row), dim_);
  }
  // Computes the products with `count` rows, given by their addresses, with the same bits as `dot`.
  void dots(const float* x, const void* const* rows, int64_t count, float* out) const {
    (half_ ? k_.dots_half : k_.dots)(x, rows, count, dim_, out);
  }
  // Do the same for products with the bits of Q R^T, and for rows rounded to pairs.
  void ordered_dots(const float* x, const void* const* rows, int64_t count, float* out) const {
    (half_ ? k_.rounded->ordered_dots_half : k_.rounded->ordered_dots)(x, rows, count, dim_, out);
  }
  float round(int64_t row, float* out) const {
    return half_ ? k_.rounded->round_half(halves(row), dim_, out)
                 : k_.rounded->round(floats(row), dim_, out);
  }
  // See Kernels::pull; the rows are given by their addresses.
  void pull(const Pull& sum, float stay, const float* q, float* drift, float* moved) const {
    (half_ ? k_.pull_half : k_.pull)(sum, stay, q, dim_, drift, moved);
  }
  const void* address(int64_t row) const {
    return half_ ? static_cast<const void*>(halves(row)) : floats(row);
  }
  // Returns the row in float32: in place, or written to `scratch`.
  const float* row(int64_t row, float* scratch) const;

  // Packs rows [row, row + count) over the whole depth, as the right side of Q R^T.
  void pack(int64_t row, int64_t count, float* out) const;
  // Packs numbers [column, column + count) of rows [row, row + depth), as the right side of W R.
  void slice(int64_t row, int64_t depth, int64_t column, int64_t count, float* out) const;

 private:
  const float* floats(int64_t row) const {
    return static_cast<const float*>(features_) + row * dim_;
  }
  const uint16_t* halves(int64_t row) const {
    return static_cast<const uint16_t*>(features_) + row * dim_;
  }
  void check_rows();

  const Kernels& k_ = kernels();
  const void* features_;
  int64_t rows_, dim_;
  bool half_;
  Buffer<unsigned char> copy_;
  Buffer<float> norms_, inverses_;
  int64_t directions_;
  mutable std::once_flag once_, once_for_cone_;
  mutable std::atomic<bool> projected_{false};
  mutable Projection projection_;
  mutable Cone cone_;
};

}  // namespace anoco
