#include "picture/threshold_counts.hpp"

#include <algorithm>
#include <cstring>

namespace anoco {

namespace {

constexpr uint32_t kBlockBits = 20;
constexpr uint32_t kBlocks = 1u << (31 - kBlockBits);
constexpr uint32_t kCells = 2;                     // for each threshold
constexpr int64_t kMostRecent = int64_t{1} << 31;  // values, so that no count of 32 bits overflows

uint32_t pattern(float number) {
  uint32_t bits;
  std::memcpy(&bits, &number, sizeof bits);
  return bits & 0x7FFFFFFF;  // -0 is 0
}

}  // namespace

ThresholdCounts::ThresholdCounts(const float* thresholds, int64_t count)
    : thresholds_(static_cast<size_t>(count) + 1, UINT32_MAX),
      blocks_(kBlocks),
      counts_(2 * static_cast<size_t>(count) + 2),
      total_(counts_.size()) {
  std::transform(thresholds, thresholds + count, thresholds_.begin(), pattern);
  std::vector<uint32_t> inside(kBlocks);
  for (int64_t i = 0; i < count; ++i) ++inside[thresholds_[i] >> kBlockBits];
  uint32_t cells = 0;
  for (uint32_t b = 0; b < kBlocks; ++b) {
    uint32_t width = 0;
    while (width < kBlockBits && (1u << width) < kCells * inside[b]) ++width;
    const uint32_t shift = kBlockBits - width;
    blocks_[b] = {shift, cells - ((b << kBlockBits) >> shift)};
    cells += 1u << width;
  }
  before_.resize(cells + size_t{1});
  for (int64_t i = 0; i < count; ++i) ++before_[cell(thresholds_[i]) + 1];
  for (uint32_t c = 0; c < cells; ++c) before_[c + 1] += before_[c];
}

uint32_t ThresholdCounts::cell(uint32_t value) const {
  const Block block = blocks_[value >> kBlockBits];
  return block.offset + (value >> block.shift);
}

void ThresholdCounts::add(const float* values, int64_t count) {
  while (count > 0) {
    if (recent_ == kMostRecent) collect();
    const int64_t some = std::min(count, kMostRecent - recent_);
    add_recent(values, some);
    recent_ += some;
    values += some;
    count -= some;
  }
}

void ThresholdCounts::add_recent(const float* values, int64_t count) {
  const uint32_t* thresholds = thresholds_.data();
  const uint32_t* before = before_.data();
  const Block* blocks = blocks_.data();
  uint32_t* counts = counts_.data();
  for (int64_t k = 0; k < count; ++k) {
    const uint32_t value = pattern(values[k]);
    const Block block = blocks[value >> kBlockBits];
    const uint32_t cell = block.offset + (value >> block.shift);
    uint32_t i = before[cell];
    i += thresholds[i] < value;  // most often the only step, and without a branch to mispredict
    if (thresholds[i] < value)
      i = static_cast<uint32_t>(
          std::lower_bound(thresholds + i, thresholds + before[cell + 1], value) - thresholds);
    ++counts[2 * size_t{i} + (thresholds[i] == value)];
  }
}

void ThresholdCounts::collect() {
  for (size_t i = 0; i < counts_.size(); ++i) total_[i] += counts_[i];
  std::fill(counts_.begin(), counts_.end(), 0);
  recent_ = 0;
}

void ThresholdCounts::read(int64_t* between, int64_t* equal) {
  collect();
  for (size_t i = 0; i < thresholds_.size(); ++i) {
    between[i] += total_[2 * i];
    if (i + 1 < thresholds_.size()) equal[i] += total_[2 * i + 1];
  }
}

}  // namespace anoco
