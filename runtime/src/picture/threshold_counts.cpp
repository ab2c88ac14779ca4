#include "picture/threshold_counts.hpp"

#include <algorithm>
#include <cstring>

namespace anoco {

namespace {

constexpr uint32_t kBlockBits = 20;
constexpr uint32_t kBlocks = 1u << (31 - kBlockBits);
constexpr uint32_t kCells = 2;                     // for each threshold
constexpr int64_t kMostRecent = int64_t{1} << 31;  // values, so that no count of 32 bits overflows
constexpr int64_t kRun = 64;  // values that are compared with the least at once
// With 2^17 thresholds the tables take 3 MB, and are as fast with parts as without.
constexpr int64_t kMostInCache = int64_t{1} << 17;
constexpr uint32_t kPartBits = 13;      // so many cells take 150 KB of tables
constexpr uint32_t kMostParts = 512;    // each has a cache line that values are written to
constexpr uint32_t kChunk = 1024;       // values
constexpr uint32_t kChunks = 1u << 14;  // 64 MB, of which only what is used becomes memory
constexpr uint32_t kNoChunk = UINT32_MAX;

uint32_t pattern(float number) {
  uint32_t bits;
  std::memcpy(&bits, &number, sizeof bits);
  return bits & 0x7FFFFFFF;  // -0 is 0
}

}  // namespace

ThresholdCounts::ThresholdCounts(const float* thresholds, int64_t count)
    : thresholds_(static_cast<size_t>(count) + 1, UINT32_MAX),
      blocks_(kBlocks),
      counts_(2 * static_cast<size_t>(count) + 2) {
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
  if (count > kMostInCache) make_parts(cells);
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
  const uint32_t lowest = thresholds_[0];
  uint32_t run[kRun];
  while (count > 0) {
    const int64_t size = std::min(count, kRun);
    int32_t highest = 0;  // signed numbers are compared by SSE2
    for (int64_t k = 0; k < size; ++k) {
      run[k] = pattern(values[k]);
      highest = std::max(highest, static_cast<int32_t>(run[k]));
    }
    if (static_cast<uint32_t>(highest) < lowest)  // as most of a good part is
      counts_[0] += static_cast<uint32_t>(size);
    else if (ends_.empty())
      count_now(run, size);
    else
      wait(run, size);
    values += size;
    count -= size;
  }
}

void ThresholdCounts::count_now(const uint32_t* values, int64_t count) {
  const uint32_t* thresholds = thresholds_.data();
  const uint32_t* before = before_.data();
  const Block* blocks = blocks_.data();
  uint32_t* counts = counts_.data();
  for (int64_t k = 0; k < count; ++k) {
    const uint32_t value = values[k];
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

void ThresholdCounts::make_parts(uint32_t cells) {
  part_shift_ = kPartBits;
  while ((cells - 1) >> part_shift_ >= kMostParts) ++part_shift_;
  ends_.resize(((cells - 1) >> part_shift_) + 1);
  full_.resize(kChunks);
  chunks_.reset(new uint32_t[size_t{kChunks} * kChunk]);
  count_waiting();
}

void ThresholdCounts::wait(const uint32_t* values, int64_t count) {
  if (kChunks - used_ < count) count_waiting();  // each value might need a new chunk
  const Block* blocks = blocks_.data();
  uint32_t* ends = ends_.data();
  uint32_t* chunks = chunks_.get();
  for (int64_t k = 0; k < count; ++k) {
    const uint32_t value = values[k];
    const Block block = blocks[value >> kBlockBits];
    uint32_t& end = ends[(block.offset + (value >> block.shift)) >> part_shift_];
    chunks[end++] = value;
    if (end % kChunk == 0) {
      full_[used_] = end / kChunk - 1;
      end = kChunk * used_++;
    }
  }
}

// Counts the values that wait, part by part, and leaves each part its first chunk alone.
void ThresholdCounts::count_waiting() {
  for (uint32_t part = 0; part < ends_.size(); ++part) {
    if (used_ != 0) {
      uint32_t chunk = ends_[part] / kChunk;
      count_now(&chunks_[size_t{chunk} * kChunk], ends_[part] % kChunk);
      while ((chunk = full_[chunk]) != kNoChunk)
        count_now(&chunks_[size_t{chunk} * kChunk], kChunk);
    }
    ends_[part] = part * kChunk;
    full_[part] = kNoChunk;
  }
  used_ = static_cast<uint32_t>(ends_.size());
}

void ThresholdCounts::collect() {
  count_waiting();
  total_.resize(counts_.size());
  for (size_t i = 0; i < counts_.size(); ++i) total_[i] += counts_[i];
  std::fill(counts_.begin(), counts_.end(), 0);
  recent_ = 0;
}

void ThresholdCounts::read(int64_t* between, int64_t* equal) {
  if (!total_.empty()) collect();
  count_waiting();
  const size_t last = thresholds_.size() - 1;
  const auto add = [&](const auto& counts) {
    for (size_t i = 0; i < last; ++i) {
      between[i] += counts[2 * i];
      equal[i] += counts[2 * i + 1];
    }
    between[last] += counts[2 * last];
  };
  if (total_.empty())
    add(counts_);
  else
    add(total_);
}

}  // namespace anoco
