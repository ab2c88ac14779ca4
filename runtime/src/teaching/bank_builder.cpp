#include "teaching/bank_builder.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "bundle/safetensors.hpp"
#include "failure.hpp"
#include "kernels/kernels.hpp"
#include "teaching/half.hpp"

namespace anoco {
namespace {

bool finite(const float* values, int64_t count) {
  return std::all_of(values, values + count, [](float v) { return std::isfinite(v); });
}

[[noreturn]] void refuse(const std::string& name, const std::string& why) {
  fail(ANOCO_BAD_FEATURES,
       name + " cannot be a reference: " + why + "; take another picture of a good part");
}

template <class T>
Tensor column(const char* name, TensorType type, const std::vector<T>& values) {
  const std::string_view data(reinterpret_cast<const char*>(values.data()),
                              values.size() * sizeof(T));
  return {name, type, {int64_t(values.size())}, data};
}

}  // namespace

BankBuilder::BankBuilder(const BankFile& file) : BankBuilder(file.dim, file.half) {
  std::vector<int64_t> order(size_t(file.rows));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return file.reference[a] < file.reference[b]; });
  features_.reserve(order.size() * row_bytes());
  for (const int64_t k : order) {
    const auto* row = static_cast<const unsigned char*>(file.features) + size_t(k) * row_bytes();
    features_.insert(features_.end(), row, row + row_bytes());
    reference_.push_back(file.reference[k]);
    view_.push_back(file.view[k]);
    row_.push_back(file.row[k]);
    col_.push_back(file.col[k]);
  }
}

int64_t BankBuilder::add(int32_t reference, const float* features, const uint8_t* scored,
                         const InputContract& input, const std::string& name) {
  const int64_t before = rows();
  int64_t seen = 0;
  for (int64_t p = 0; p < input.patches(); ++p) {
    if (!scored[p]) continue;
    const float* patch = features + p * dim_;
    store(patch);
    const double sum = squares(rows());
    if (!std::isfinite(sum) && finite(patch, dim_))
      fail(ANOCO_BAD_FEATURES, "features of " + name +
                                   " do not fit into float16; enroll with: anoco-edge enroll "
                                   "--bank-dtype float32");
    const char* why = norm_problem(sum);
    if (why != nullptr && sum != 0) refuse(name, "patch " + std::to_string(seen) + " " + why);
    ++seen;
    if (sum == 0) {
      features_.resize(features_.size() - row_bytes());
      continue;
    }
    reference_.push_back(reference);
    view_.push_back(0);
    row_.push_back(static_cast<int16_t>(p / input.cols));
    col_.push_back(static_cast<int16_t>(p % input.cols));
  }
  if (rows() == before) refuse(name, "no patch of it has a signal");
  return seen - (rows() - before);
}

BankBuilder BankBuilder::without(int32_t reference) const {
  const auto [first, end] = span_of(reference);
  BankBuilder rest(dim_, half_);
  rest.features_.reserve(features_.size());
  rest.copy_rows(*this, {0, first});
  rest.copy_rows(*this, {end, rows()});
  return rest;
}

std::vector<float> BankBuilder::features_of(int32_t reference) const {
  const auto [first, end] = span_of(reference);
  std::vector<float> out(size_t((end - first) * dim_));
  for (int64_t row = first; row < end; ++row) widen(row, out.data() + (row - first) * dim_);
  return out;
}

std::vector<int64_t> BankBuilder::places_of(int32_t reference, int64_t cols) const {
  const auto [first, end] = span_of(reference);
  std::vector<int64_t> places;
  for (int64_t row = first; row < end; ++row)
    places.push_back(row_[size_t(row)] * cols + col_[size_t(row)]);
  return places;
}

std::shared_ptr<const Bank> BankBuilder::bank() const {
  anoco_bank_options options = ANOCO_BANK_OPTIONS_INIT;
  options.type = half_ ? ANOCO_FLOAT16 : ANOCO_FLOAT32;
  options.features = features_.data();
  options.rows = rows();
  options.dim = dim_;
  return std::make_shared<const Bank>(options);
}

float BankBuilder::largest_norm() const {
  const std::vector<float> all = norms();
  return *std::max_element(all.begin(), all.end());
}

Bytes BankBuilder::file() const {
  const std::vector<float> norms = this->norms();
  return write_safetensors({
      {"features", half_ ? TensorType::f16 : TensorType::f32, {rows(), dim_}, view(features_)},
      column("norms", TensorType::f32, norms),
      column("reference", TensorType::i32, reference_),
      column("view", TensorType::i16, view_),
      column("row", TensorType::i16, row_),
      column("col", TensorType::i16, col_),
  });
}

BankBuilder::Span BankBuilder::span_of(int32_t reference) const {
  const auto [first, end] = std::equal_range(reference_.begin(), reference_.end(), reference);
  return {first - reference_.begin(), end - reference_.begin()};
}

void BankBuilder::store(const float* features) {
  const size_t start = features_.size();
  features_.resize(start + row_bytes());
  unsigned char* out = features_.data() + start;
  if (!half_) {
    std::memcpy(out, features, row_bytes());
    return;
  }
  for (int64_t k = 0; k < dim_; ++k, out += 2) {
    const uint16_t half = to_half(features[k]);
    std::memcpy(out, &half, sizeof half);
  }
}

double BankBuilder::squares(int64_t row) const {
  std::vector<float> wide(static_cast<size_t>(dim_));
  widen(row, wide.data());
  return kernels().squares(wide.data(), dim_);
}

std::vector<float> BankBuilder::norms() const {
  std::vector<float> norms;
  for (int64_t row = 0; row < rows(); ++row) norms.push_back(float(std::sqrt(squares(row))));
  return norms;
}

void BankBuilder::widen(int64_t row, float* out) const {
  const unsigned char* stored = features_.data() + size_t(row) * row_bytes();
  if (half_)
    kernels().widen(reinterpret_cast<const uint16_t*>(stored), dim_, out);
  else
    std::memcpy(out, stored, row_bytes());
}

void BankBuilder::copy_rows(const BankBuilder& from, Span span) {
  const auto copy = [&](const auto& source, auto& target, int64_t size) {
    target.insert(target.end(), source.begin() + span.first * size,
                  source.begin() + span.second * size);
  };
  copy(from.features_, features_, int64_t(row_bytes()));
  copy(from.reference_, reference_, 1);
  copy(from.view_, view_, 1);
  copy(from.row_, row_, 1);
  copy(from.col_, col_, 1);
}

}  // namespace anoco
