#include "scorer/bank.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "failure.hpp"

namespace anoco {

const char* norm_problem(double squares) {
  if (!std::isfinite(squares)) return "contains NaN or infinity";
  if (squares == 0) return "has a zero norm";
  if (squares < kLeastNorm * kLeastNorm) return "has a norm below 1e-10";
  if (squares > kMostNorm * kMostNorm) return "has a norm over 1e10";
  return nullptr;
}

Bank::Bank(const anoco_bank_options& options)
    : features_(options.features),
      rows_(options.rows),
      dim_(options.dim),
      half_(options.type == ANOCO_FLOAT16),
      directions_(options.directions < 0 ? Projection::choose(options.rows, options.dim)
                                         : options.directions) {
  const int64_t padded = (rows_ + kBlock - 1) / kBlock * kBlock;
  norms_ = Buffer<float>(padded);
  inverses_ = Buffer<float>(padded);
  check_rows();
  if (options.copy != 0) {
    const int64_t bytes = rows_ * dim_ * (half_ ? 2 : 4);
    copy_ = Buffer<unsigned char>(bytes);
    std::memcpy(copy_.data(), features_, size_t(bytes));
    features_ = copy_.data();
  }
}

const Projection& Bank::projection() const {
  std::call_once(once_, [&] {
    projection_ = Projection(*this, directions_);
    projected_ = true;
  });
  return projection_;
}

const Cone& Bank::cone() const {
  std::call_once(once_for_cone_, [&] { cone_ = Cone(*this); });
  return cone_;
}

void Bank::check_rows() {
  Buffer<float> scratch{dim_};
  for (int64_t j = 0; j < rows_; ++j) {
    const double squares = k_.squares(row(j, scratch.data()), dim_);
    if (const char* why = norm_problem(squares))
      fail(ANOCO_BAD_FEATURES, "reference patch " + std::to_string(j) + " " + why);
    norms_[j] = float(std::sqrt(squares));
    inverses_[j] = float(1 / std::sqrt(squares));
  }
  std::fill(inverses_.data() + rows_, inverses_.data() + inverses_.size(), 0.0f);
}

const float* Bank::row(int64_t row, float* scratch) const {
  if (!half_) return floats(row);
  k_.widen(halves(row), dim_, scratch);
  return scratch;
}

void Bank::pack(int64_t row, int64_t count, float* out) const {
  for (int64_t j = 0; j < count; j += k_.nr, out += k_.nr * dim_) {
    const int64_t width = std::min(k_.nr, count - j);
    if (half_)
      k_.pack_b_half(halves(row + j), dim_, width, dim_, out);
    else
      k_.pack_b(floats(row + j), dim_, width, dim_, out);
  }
}

void Bank::slice(int64_t row, int64_t depth, int64_t column, int64_t count, float* out) const {
  if (half_)
    k_.slice_b_half(halves(row) + column, dim_, count, depth, out);
  else
    k_.slice_b(floats(row) + column, dim_, count, depth, out);
}

double Bank::median_norm() const {
  std::vector<float> norms(norms_.data(), norms_.data() + rows_);
  const auto middle = norms.begin() + std::ptrdiff_t(rows_ / 2);
  std::nth_element(norms.begin(), middle, norms.end());
  if (rows_ % 2 != 0) return *middle;
  return (double(*std::max_element(norms.begin(), middle)) + double(*middle)) / 2;
}

}  // namespace anoco
