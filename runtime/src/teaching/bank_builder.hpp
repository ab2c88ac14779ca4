// The patches of a product's references while it is taught: what becomes the bank, as
// anoco_edge/teaching/banks.py builds it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bundle/bundle.hpp"
#include "scorer/bank.hpp"

namespace anoco {

// Reference by reference, in their order.
class BankBuilder {
 public:
  BankBuilder(int64_t dim, bool half) : dim_(dim), half_(half) {}
  explicit BankBuilder(const BankFile& file);

  int64_t rows() const { return int64_t(reference_.size()); }
  int64_t dim() const { return dim_; }
  float largest_norm() const;

  // The next reference: those patches of its grid that count, but for those without signal
  // (zeros), whose number is returned. Where one cannot be compared with, or none is left, a
  // Failure (ANOCO_BAD_FEATURES) calls the reference by its name.
  int64_t add(int32_t reference, const float* features, const uint8_t* scored,
              const InputContract& input, const std::string& name);

  BankBuilder without(int32_t reference) const;
  std::vector<float> features_of(int32_t reference) const;

  // Reads the features where they are, so they must stay.
  std::shared_ptr<const Bank> bank() const;
  // As bank-N.safetensors.
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
