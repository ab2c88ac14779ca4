// How much memory a scorer takes, decided before it takes any.
#pragma once

#include <cstdint>

#include "kernels/kernels.hpp"
#include "scorer/bank.hpp"

namespace anoco {

// Bytes that a scorer on the CPU takes where nobody says how many.
constexpr int64_t kDefaultMemory = 48'000'000;

// As callers say it: millions of bytes, 0 for the default.
inline int64_t memory_of(uint32_t megabytes, int64_t otherwise) {
  return megabytes != 0 ? 1'000'000 * int64_t{megabytes} : otherwise;
}

struct Settings {
  uint32_t metric = ANOCO_METRIC_PRODUCT;
  double lambda = 1.0;
  double floor = 0.05;
  int threads = 1;
  int64_t memory = kDefaultMemory;  // bytes
  bool pin = false;
};

// References of one piece of work. Few enough that the packed piece stays in the second cache.
constexpr int64_t kColumns = 128;

// Query rows that a packed piece of the bank is multiplied with before their products are kept,
// and the least that is worth packing for: a number costs as much as a dozen multiplications.
constexpr int64_t kGroup = 384, kLeastRows = 192;

// Candidates whose products with the anchor are computed together.
constexpr int64_t kTogether = 4;

// The tail: rows, depth and width of a piece of W R. Short sums, because they are as long as the
// bank otherwise; they are added up in float64.
constexpr int64_t kDenseRows = 192, kDenseDepth = 128;

// More rows at once than this gain nothing.
constexpr int64_t kMostTileRows = 3 * kGroup;

struct Layout {
  Layout(const Bank& bank, const Settings& settings);

  int64_t stride;      // of a row of similarities: the bank, up to a whole number of blocks
  int64_t blocks;      // in such a row
  int64_t tile_rows;   // query rows at once
  int64_t candidates;  // looked at one by one before a row is called crowded
  int64_t products;    // computed one by one before bounds are given up for a row
  int64_t sketch;      // numbers a row is sketched with, 0 without projection
  int64_t bytes;       // in all
};

}  // namespace anoco
