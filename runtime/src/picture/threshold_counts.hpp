// Counts how many of many values lie between thresholds, for metrics over the pixels of many maps.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace anoco {

// Values and thresholds are finite and at least 0, so they sort like their bit patterns.
class ThresholdCounts {
 public:
  // The thresholds are distinct and ascending.
  ThresholdCounts(const float* thresholds, int64_t count);

  // Counts more values.
  void add(const float* values, int64_t count);

  // Adds to `between` (one more than there are thresholds) how many values lie below the first
  // threshold, between two, above the last; and to `equal` how many are equal to a threshold.
  void read(int64_t* between, int64_t* equal);

 private:
  // The upper bits of a value choose its block: an eighth of an octave. A block has cells in
  // proportion to its thresholds; the cell of a value is offset + (value >> shift), modulo 2^32.
  struct Block {
    uint32_t shift;
    uint32_t offset;
  };

  uint32_t cell(uint32_t value) const;
  void add_recent(const float* values, int64_t count);
  void count_now(const uint32_t* values, int64_t count);
  void make_parts(uint32_t cells);
  void wait(const uint32_t* values, int64_t count);
  void count_waiting();
  void collect();

  std::vector<uint32_t> thresholds_;  // and one more that no value reaches
  std::vector<Block> blocks_;
  std::vector<uint32_t> before_;  // for each cell the thresholds in the cells before it
  std::vector<uint32_t> counts_;  // in turns: values between two thresholds, values equal to one
  std::vector<int64_t> total_;    // the same, of all values but those in counts_; empty before
  int64_t recent_ = 0;            // the number of values in counts_ and of those that wait

  // If there are many thresholds, their tables do not fit in the cache. Values then wait until
  // many of a part, which is a range of cells, are counted together. They wait in chunks; each part
  // has its first chunk, and takes others from those that are free.
  uint32_t part_shift_ = 0;  // the part of a cell is cell >> part_shift_
  std::unique_ptr<uint32_t[]> chunks_;
  std::vector<uint32_t> ends_;  // for each part where its next value goes; empty: no parts
  std::vector<uint32_t> full_;  // for each chunk the one that was full before it
  uint32_t used_ = 0;           // chunks that are not free
};

}  // namespace anoco
