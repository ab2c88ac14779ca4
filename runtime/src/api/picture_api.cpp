// The C boundary of the parts that concern pictures: preprocessing and the energy map.
#include <cmath>
#include <string>

#include "api/boundary.hpp"
#include "picture/anomaly_map.hpp"
#include "picture/prepare.hpp"

namespace {

using anoco::fail;
using anoco::guarded;
using anoco::need;

constexpr int64_t kLongest = int64_t{1} << 15;  // pixels of a side of the input
constexpr int64_t kMostPixels = int64_t{1} << 31;

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

}  // extern "C"
