#include "scorer/cone.hpp"

#include <algorithm>
#include <cmath>

#include "scorer/bank.hpp"

namespace anoco {
namespace {

constexpr double kAngleSlack = 1e-6;

// References that the axis is made from, and how many of them are added up at once.
constexpr int64_t kAxisSample = 2048, kAxisTogether = 64;

// Returns the angle of a cosine that was moved outside of its range by at most rounding.
double angle_of(double cosine) { return std::acos(std::min(std::max(cosine, -1.0), 1.0)); }

// Adds up directions from all parts of the bank.
Buffer<float> find_axis(const Bank& bank) {
  Buffer<float> axis(bank.dim()), unused(bank.dim());
  std::fill(axis.data(), axis.data() + bank.dim(), 0.0f);
  const int64_t sample = std::min(kAxisSample, bank.rows());
  for (int64_t first = 0; first < sample; first += kAxisTogether) {
    const void* rows[kAxisTogether];
    float weights[kAxisTogether];
    const int64_t count = std::min(kAxisTogether, sample - first);
    for (int64_t k = 0; k < count; ++k) {
      const int64_t reference = (first + k) * bank.rows() / sample;
      rows[k] = bank.address(reference);
      weights[k] = bank.inverse_norm(reference);
    }
    bank.pull({count, weights, rows}, 1.0f, axis.data(), unused.data(), axis.data());
  }
  return axis;
}

}  // namespace

Cone::Cone(const Bank& bank)
    : angles_(bank.rows()), of_blocks_((bank.rows() + kBlock - 1) / kBlock) {
  constexpr double kRoundoff = 1.0 / (1 << 24);
  const double terms = double(kDepth + bank.dim() / 16 + 16) * kRoundoff;
  slack_ = 2 * terms / (1 - terms);
  const Buffer<float> axis = find_axis(bank);
  const double length = std::sqrt(kernels().squares(axis.data(), bank.dim()));
  std::fill(of_blocks_.data(), of_blocks_.data() + of_blocks_.size(), 0.0f);
  for (int64_t j = 0; j < bank.rows(); ++j) {
    // Directions that cancel leave no axis; then nothing is within reach.
    const double cosine =
        length == 0 ? -1 : bank.dot(axis.data(), j) * bank.inverse_norm(j) / length;
    angles_[j] = float(angle_of(cosine - slack_) + kAngleSlack);
    of_blocks_[j / kBlock] = std::max(of_blocks_[j / kBlock], angles_[j]);
    widest_ = std::max(widest_, angles_[j]);
  }
}

float Cone::reach(int64_t anchor, float similarity) const {
  return float(angle_of(double(similarity) + slack_) - double(angles_[anchor]) - kAngleSlack);
}

}  // namespace anoco
