// Collects the patches of a product's references, which become its bank, as
// anoco_edge/teaching/bank_builder.py does.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bundle/bundle.hpp"
#include "scorer/bank.hpp"

namespace anoco {

// The patches are ordered by reference.
class BankBuilder {
 public:
  BankBuilder(int64_t dim, bool half) : dim_(dim), half_(half) {}
  explicit BankBuilder(const BankFile& file);

  int64_t rows() const { return int64_t(reference_.size()); }
  int64_t dim() const { return dim_; }
  float largest_norm() const;

  // Adds the next reference: the scored patches of its grid, except for patches of zeros, whose
  // number is returned. If a patch cannot be compared with, or none is left, a Failure
  // (ANOCO_BAD_FEATURES) names the reference.
  int64_t add(int32_t reference, const float* features, const uint8_t* scored,
              const InputContract& input, const std::string& name);

  BankBuilder without(int32_t reference) const;
  std::vector<float> features_of(int32_t reference) const;
  // Returns where these patches lie in a grid of so many columns.
  std::vector<int64_t> places_of(int32_t reference, int64_t cols) const;

  // The bank reads the features in place, so this object must stay as it is.
  std::shared_ptr<const Bank> bank() const;
  // Returns the content of bank-N.safetensors.
  Bytes file() const;

 private:
  using Span = std::pair<int64_t, int64_t>;  // the first row, and the one after the last
  Span span_of(int32_t reference) const;
  size_t row_bytes() const { return size_t(dim_) * (half_ ? 2 : 4); }
  void store(const float* features);
  double squares(int64_t row) const;  // their sum, as the row is stored
  std::vector<float> norms() const;
  void widen(int64_t row, float* out) const;
  void copy_rows(const BankBuilder& from, Span span);

  int64_t dim_;
  bool half_;
  Bytes features_;
  std::vector<int32_t> reference_;
  std::vector<int16_t> view_, row_, col_;
};

}  // namespace anoco
