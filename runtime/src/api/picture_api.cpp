// The C boundary of the parts that concern pictures: preprocessing and the energy map.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "api/boundary.hpp"
#include "picture/anomaly_map.hpp"
#include "picture/prepare.hpp"
#include "picture/threshold_counts.hpp"

namespace {

using anoco::fail;
using anoco::guarded;
using anoco::need;

constexpr int64_t kLongest = int64_t{1} << 15;  // pixels of a side of the input
constexpr int64_t kMostPixels = int64_t{1} << 31;
constexpr int64_t kMostThresholds = int64_t{1} << 29;

anoco::InputContract read_input(const anoco_input* given) {
  need(given, "input");
  const auto input = anoco::read_options(given, anoco_input ANOCO_INPUT_INIT);
  anoco::check_reserved(input.fill[3], "the input's");
  if (input.fit != ANOCO_STRETCH && input.fit != ANOCO_LETTERBOX)
    fail(ANOCO_INVALID_ARGUMENT, "the input's fit is " + std::to_string(input.fit) +
                                     ": use ANOCO_STRETCH or ANOCO_LETTERBOX");
  const std::string size = std::to_string(input.width) + "x" + std::to_string(input.height);
  if (input.width < 1 || input.height < 1 || input.width > kLongest || input.height > kLongest)
    fail(ANOCO_INVALID_ARGUMENT,
         "the input is " + size + ": give 1 to " + std::to_string(kLongest) + " pixels each way");
  const int64_t stride = input.stride;
  if (stride < 1 || input.width % stride != 0 || input.height % stride != 0)
    fail(ANOCO_INVALID_ARGUMENT, "the input is " + size + " and its stride " +
                                     std::to_string(stride) + ": give whole patches");
  anoco::InputContract contract;
  contract.width = input.width;
  contract.height = input.height;
  contract.fit = input.fit == ANOCO_STRETCH ? anoco::Fit::stretch : anoco::Fit::letterbox;
  contract.fill = {input.fill[0], input.fill[1], input.fill[2]};
  contract.stride = stride;
  contract.rows = input.height / stride;
  contract.cols = input.width / stride;
  return contract;
}

void check_grid(int64_t rows, int64_t cols, int64_t stride) {
  const bool small = rows >= 1 && cols >= 1 && stride >= 1 && rows <= kMostPixels &&
                     cols <= kMostPixels / rows && stride <= kLongest &&
                     rows * cols <= kMostPixels / (stride * stride);
  if (!small)
    fail(ANOCO_INVALID_ARGUMENT, "a map of " + std::to_string(rows) + " x " + std::to_string(cols) +
                                     " patches of stride " + std::to_string(stride) +
                                     ": give 1 or more, and 2^31 pixels at most");
}

void check_energy(const float* energy, const uint8_t* counted, int64_t patches) {
  for (int64_t i = 0; i < patches; ++i)
    if ((counted == nullptr || counted[i] != 0) && !std::isfinite(energy[i]))
      fail(ANOCO_INVALID_ARGUMENT,
           "the energy of patch " + std::to_string(i) + " is " + std::to_string(energy[i]),
           "give finite energies, or set counted to 0 for that patch");
}

void check_numbers(const float* numbers, int64_t count, const char* name) {
  const auto wrong = [](float x) { return !(x >= 0 && x <= std::numeric_limits<float>::max()); };
  int any = 0;  // without an exit from the loop, so that it is vectorized
  for (int64_t i = 0; i < count; ++i) any |= static_cast<int>(wrong(numbers[i]));
  if (any == 0) return;
  const float* first = std::find_if(numbers, numbers + count, wrong);
  fail(ANOCO_INVALID_ARGUMENT,
       std::string(name) + " " + std::to_string(first - numbers) + " is " + std::to_string(*first),
       "give finite numbers of at least 0");
}

}  // namespace

extern "C" {

anoco_status anoco_preprocess(const anoco_image* image, const anoco_input* input, uint8_t* out,
                              anoco_placement* placement) {
  return guarded([&] {
    const anoco::InputContract contract = read_input(input);
    const anoco_image checked = anoco::checked_image(image);
    anoco::check_on_host(checked);
    need(out, "out");
    if (placement != nullptr) anoco::check_out(placement);
    anoco::Preparer preparer(contract, checked.width, checked.height);
    const anoco::Placement p = preparer.prepare(checked, out);
    if (placement != nullptr)
      anoco::write_out(placement, anoco_placement{0, 0, p.left, p.top, p.width, p.height});
  });
}

anoco_status anoco_energy_map(const float* energy, const uint8_t* counted, int64_t rows,
                              int64_t cols, int64_t stride, float* out) {
  return guarded([&] {
    need(energy, "energy");
    need(out, "out");
    check_grid(rows, cols, stride);
    check_energy(energy, counted, rows * cols);
    anoco::AnomalyMapBuilder(rows, cols, stride).make(energy, counted, out);
  });
}

anoco_status anoco_count_values(const float* thresholds, int64_t threshold_count,
                                const float* const* values, const int64_t* sizes, int64_t maps,
                                int64_t* between, int64_t* equal) {
  return guarded([&] {
    need(thresholds, "thresholds");
    if (maps != 0) need(values, "values");
    if (maps != 0) need(sizes, "sizes");
    need(between, "between");
    need(equal, "equal");
    if (threshold_count < 1 || threshold_count > kMostThresholds || maps < 0)
      fail(ANOCO_INVALID_ARGUMENT, std::to_string(threshold_count) + " thresholds and " +
                                       std::to_string(maps) +
                                       " maps: give 1 to 2^29 thresholds, and 0 or more maps");
    check_numbers(thresholds, threshold_count, "threshold");
    for (int64_t i = 0; i < maps; ++i) {
      if (sizes[i] < 0)
        fail(ANOCO_INVALID_ARGUMENT, "the size of map " + std::to_string(i) + " is negative");
      if (sizes[i] != 0) need(values[i], "a map");
      check_numbers(values[i], sizes[i], "value");
    }
    for (int64_t i = 1; i < threshold_count; ++i)
      if (thresholds[i] <= thresholds[i - 1])
        fail(ANOCO_INVALID_ARGUMENT,
             "threshold " + std::to_string(i) + " is not above the one before it",
             "give distinct thresholds in ascending order");
    anoco::ThresholdCounts counts(thresholds, threshold_count);
    for (int64_t i = 0; i < maps; ++i) counts.add(values[i], sizes[i]);
    counts.read(between, equal);
  });
}

}  // extern "C"
