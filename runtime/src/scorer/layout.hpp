// Decides how much memory a scorer takes, before it takes any.
#pragma once

#include <cstdint>

#include "kernels/kernels.hpp"
#include "scorer/bank.hpp"

namespace anoco {

// The default number of bytes that a scorer on the CPU takes.
constexpr int64_t kDefaultMemory = 48'000'000;

// The product of lambda and a feature must fit in a float.
inline bool is_valid_lambda(double lambda) { return lambda >= 1e-24 && lambda <= 1e24; }
constexpr const char* kLambdaRule = "it must be a number from 1e-24 to 1e24";

// Converts millions of bytes as callers give them; 0 stands for the default.
inline int64_t memory_of(uint32_t megabytes, int64_t otherwise) {
  return megabytes != 0 ? 1'000'000 * int64_t{megabytes} : otherwise;
}

// Whether products of rounded numbers come first, where the processor has them. The results have
// the same bits either way; only tests choose.
enum class Rounding { kWhereItPays, kNever, kAlways };

struct Settings {
  uint32_t metric = ANOCO_METRIC_PRODUCT;
  double lambda = 1.0;
  double floor = 0.05;
  int threads = 1;
  int64_t memory = kDefaultMemory;  // bytes
  bool pin = false;
  Rounding rounding = Rounding::kWhereItPays;
};

// References per piece of work. They are few enough that the packed piece stays in the second-level
// cache.
constexpr int64_t kColumns = 128;

// Query rows that a packed piece of the bank is multiplied with before their products are stored,
// and the fewest that are worth packing for: packing a number costs as much as a dozen
// multiplications.
constexpr int64_t kGroup = 384, kLeastRows = 192;

// Pruning is worth it if a trial promises to leave less than this share of the work.
constexpr double kWorth = 0.8;

// Candidates whose products with the anchor are computed together.
constexpr int64_t kTogether = 4;

// References whose ordered products are computed together. Sixteen take as long as one to compute,
// but longer to find and to fetch.
constexpr int64_t kRoundedTogether = 8;

// Rows and columns of a piece of W R for dense rows. The sums are kept short, because they would
// otherwise be as long as the bank; they are added up in float64.
constexpr int64_t kDenseRows = kGroup, kDenseColumns = 256;

// The depth of such a piece that is packed at once. The more, the less often its float64 sums come
// to the first-level cache; the fewer, the more rows of weights fit in a block.
constexpr int64_t kMostDenseDepth = 512;
static_assert(kMostDenseDepth * kMostPanelRows <= kGroup * kColumns, "a panel fits in a block");

// Tiles of more rows are not faster.
constexpr int64_t kMostTileRows = 3 * kGroup;

struct Layout {
  Layout(const Bank& bank, const Settings& settings);

  int64_t stride;      // numbers in a row of similarities: the bank, rounded up to whole blocks
  int64_t blocks;      // in such a row
  int64_t tile_rows;   // query rows at once
  int64_t candidates;  // looked at one by one before a row is treated as dense
  int64_t products;    // computed one by one before a row is treated as unprunable
  int64_t sketch;      // numbers in the sketch of a row, 0 without projection
  int64_t bytes;       // in all
};

}  // namespace anoco
