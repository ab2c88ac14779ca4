// The classes of src/picture take their memory once, exactly as much as they say, and then none.
// Built with a sanitizer this also shows that they stay inside the caller's memory, because
// pictures have no byte to spare. What they compute is compared with Python in
// tests/native/test_native_parts.py.
#include <algorithm>
#include <cstdlib>
#include <new>
#include <vector>

#include "picture/anomaly_map.hpp"
#include "picture/augmentation.hpp"
#include "picture/patch_mask.hpp"
#include "picture/pooling.hpp"
#include "picture/prepare.hpp"
#include "picture/regions.hpp"
#include "tests/check.h"

namespace {

int64_t taken = 0;  // bytes so far

void* take(size_t bytes, size_t alignment) {
  taken += int64_t(bytes);
  // aligned_alloc requires a multiple of the alignment.
  void* memory = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(size_t bytes) { return take(bytes, alignof(std::max_align_t)); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return take(bytes, size_t(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

namespace {

using namespace anoco;

InputContract contract_of(int64_t cols, int64_t rows, int64_t stride, Fit fit) {
  InputContract contract;
  contract.width = cols * stride;
  contract.height = rows * stride;
  contract.fit = fit;
  contract.stride = stride;
  contract.rows = rows;
  contract.cols = cols;
  contract.dim = 1;
  return contract;
}

template <class Part, class... Arguments>
Part exactly(int64_t bytes, const Arguments&... arguments) {
  const int64_t before = taken;
  Part part(arguments...);
  CHECK(taken - before == bytes);
  return part;
}

int64_t picture_bytes(uint32_t format, int64_t width, int64_t height) {
  switch (format) {
    case ANOCO_RGBA:
    case ANOCO_BGRA: return 4 * width * height;
    case ANOCO_GREY: return width * height;
    case ANOCO_NV12: return 3 * width * height / 2;
    default: return 3 * width * height;
  }
}

void prepare_all(const InputContract& contract, int64_t most) {
  auto preparer = exactly<Preparer>(Preparer::bytes(contract, most, most), contract, most, most);
  std::vector<uint8_t> out(size_t(3 * contract.width * contract.height));
  std::vector<float> map(size_t(contract.width * contract.height), 1.0f);
  for (uint32_t format = ANOCO_RGB; format <= ANOCO_NV12; ++format)
    for (const int64_t width :
         {int64_t{16}, int64_t{30}, std::max<int64_t>(16, contract.width), most})
      for (const int64_t height :
           {int64_t{16}, int64_t{34}, std::max<int64_t>(16, contract.height), most}) {
        const std::vector<uint8_t> pixels(size_t(picture_bytes(format, width, height)), 255);
        std::vector<float> large(size_t(width * height));
        anoco_image image ANOCO_IMAGE_INIT;
        image.format = format;
        image.data = pixels.data();
        image.width = width;
        image.height = height;
        const int64_t before = taken;
        const Placement placement = preparer.prepare(checked_image(&image), out.data());
        preparer.enlarge(map.data(), placement, large.data());
        CHECK(taken == before);
        CHECK(large.front() > 0.999f && large.back() > 0.999f);
      }
}

void inspect_all(const InputContract& contract) {
  const std::vector<Point> region{{0.1, 0.1}, {0.9, 0.05}, {0.95, 0.9}};
  const Mask ignore{5, 3, std::vector<uint8_t>{1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}};
  PatchMask patch_mask(contract, region, ignore);
  (void)exactly<PatchMask>(PatchMask::bytes(contract, {}, {}), contract, std::vector<Point>{},
                           std::nullopt);
  auto maker = exactly<AnomalyMapBuilder>(
      AnomalyMapBuilder::bytes(contract.rows, contract.cols, contract.stride), contract.rows,
      contract.cols, contract.stride);
  auto finder = exactly<RegionFinder>(RegionFinder::bytes(contract), contract);
  auto average = exactly<ViewAverage>(ViewAverage::bytes(contract), contract);

  const size_t patches = size_t(contract.patches());
  const size_t pixels = size_t(contract.width * contract.height);
  std::vector<float> energy(patches), mean(patches), smoothed(patches), map(pixels);
  for (size_t i = 0; i < patches; i += 2) energy[i] = float(i % 7);
  std::vector<uint8_t> outline(pixels), rgb(3 * pixels, 9), warped(3 * pixels);
  const Placement placement = place(contract, 640, 480);
  const Affine turned{0.96, 0.2, -3, -0.2, 0.96, 4};

  const int64_t before = taken;
  average.start();
  for (const Affine& view : {kIdentity, turned}) {
    warp(rgb.data(), contract.width, contract.height, view, contract.fill, warped.data());
    average.add(view, energy.data(), patch_mask.scored(placement, view));
  }
  const uint8_t* scored = patch_mask.scored(placement);
  average.finish(scored, mean.data());
  maker.make(mean.data(), scored, map.data());
  smooth_grid(mean.data(), scored, contract.rows, contract.cols, smoothed.data());
  finder.find({mean.data(), smoothed.data(), map.data()}, 0.5, placement, 0, outline.data());
  CHECK(taken == before);
  CHECK(finder.count() > 0);
}

}  // namespace

int main() {
  for (const Fit fit : {Fit::stretch, Fit::letterbox}) {
    prepare_all(contract_of(4, 3, 16, fit), 200);
    prepare_all(contract_of(2, 2, 1, fit), 90);
    inspect_all(contract_of(12, 9, 8, fit));
  }
  return 0;
}
