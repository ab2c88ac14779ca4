// Compares the kernels before and after scoring with the CPU's code: resizing and the anomaly map
// bit for bit, pooling and the baseline by their definition.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "picture/anomaly_map.hpp"
#include "picture/pooling.hpp"
#include "picture/prepare.hpp"
#include "run.hpp"

namespace {

using anoco::AnomalyMapBuilder;
using anoco::InputContract;
using anoco::ResampleWeights;
using anoco::Resizer;
using simt::run_each;
using simt::run_pixels;
using simt::run_rows;

using Bytes = std::vector<uint8_t>;

std::mt19937 generator(11);

Bytes noise(int64_t count) {
  Bytes out(static_cast<size_t>(count));
  for (uint8_t& byte : out) byte = uint8_t(generator());
  return out;
}

struct Picture {
  anoco_image image;
  Bytes pixels, chroma;
};

// A picture without a byte to spare, and one with gaps between its rows.
Picture make_picture(uint32_t format, int64_t width, int64_t height, int64_t gap) {
  const int64_t channels[] = {0, 3, 3, 4, 4, 1, 1};
  Picture p;
  p.image = ANOCO_IMAGE_INIT;
  p.image.format = format;
  p.image.width = width;
  p.image.height = height;
  p.image.stride = width * channels[format] + gap;
  p.pixels = noise(p.image.stride * (height - 1) + width * channels[format]);
  p.image.data = p.pixels.data();
  if (format != ANOCO_NV12) return p;
  p.image.chroma_stride = width + 2 * gap;
  p.chroma = noise(p.image.chroma_stride * (height / 2 - 1) + width);
  p.image.chroma = p.chroma.data();
  return p;
}

struct Source {
  const uint8_t *image, *chroma;
  int format;
  long long stride, chroma_stride;
};

void pass(bool down, const Source& from, int64_t width, int64_t height,
          const ResampleWeights<int32_t>& axis, int channels, uint8_t* out, int64_t stride) {
  const int64_t count = axis.outputs();
  const std::vector<int> first(axis.firsts(), axis.firsts() + count);
  const std::vector<int> weights(axis.weights(0), axis.weights(0) + count * axis.reach());
  run_pixels(down ? "anoco_resize_down" : "anoco_resize_across", width, height, from.image,
             from.chroma, from.format, from.stride, from.chroma_stride, int(width), int(height),
             first.data(), weights.data(), int(axis.reach()), channels, out, (long long)stride);
}

Bytes resize_by_kernels(const anoco_image& image, int64_t width, int64_t height) {
  ResampleWeights<int32_t> across(image.width, width), down(image.height, height);
  across.set(image.width, width);
  down.set(image.height, height);
  const bool down_first = Resizer::goes_down_first(image, width, height);
  const int64_t between_width = down_first ? image.width : width;
  const int64_t between_height = down_first ? height : image.height;
  const int channels = image.format == ANOCO_GREY ? 1 : 3;
  const int colors = (image.matrix == ANOCO_BT709 ? ANOCO_GPU_BT709 : 0) +
                     (image.range == ANOCO_FULL_RANGE ? ANOCO_GPU_FULL_RANGE : 0);
  Bytes between(size_t(between_width * between_height * channels)), out(size_t(width * height * 3));
  const Source raw{static_cast<const uint8_t*>(image.data),
                   static_cast<const uint8_t*>(image.chroma), int(image.format) + colors,
                   image.stride, image.chroma_stride};
  const Source made{between.data(), nullptr, channels == 1 ? ANOCO_GREY : ANOCO_RGB,
                    between_width * channels, 0};
  pass(down_first, raw, between_width, between_height, down_first ? down : across, channels,
       between.data(), between_width * channels);
  pass(!down_first, made, width, height, down_first ? across : down, 3, out.data(), width * 3);
  return out;
}

void resizing() {
  const int64_t sizes[][4] = {// from, to
                              {2, 2, 1, 1},     {2, 2, 2, 2},    {2, 4, 7, 5},    {30, 34, 17, 33},
                              {31, 33, 32, 32}, {20, 90, 16, 8}, {90, 20, 8, 16}, {64, 48, 64, 16},
                              {64, 48, 20, 48}, {1, 1, 3, 5}};
  for (uint32_t format = ANOCO_RGB; format <= ANOCO_NV12; ++format)
    for (const auto& size : sizes) {
      if (format == ANOCO_NV12 && (size[0] % 2 != 0 || size[1] % 2 != 0)) continue;
      const Picture p = make_picture(format, size[0], size[1], 5);
      Bytes expected(size_t(size[2] * size[3] * 3));
      Resizer resizer(size[0], size[1], size[2], size[3], size[1]);
      resizer.resize(p.image, size[2], size[3], expected.data(), size[2] * 3);
      CHECK(resize_by_kernels(p.image, size[2], size[3]) == expected);
    }
}

// Enough pixels to detect a color constant that is off by one.
void many_colours() {
  Picture p = make_picture(ANOCO_NV12, 512, 512, 0);
  for (p.image.matrix = ANOCO_BT601; p.image.matrix <= ANOCO_BT709; ++p.image.matrix)
    for (p.image.range = ANOCO_LIMITED_RANGE; p.image.range <= ANOCO_FULL_RANGE; ++p.image.range) {
      Bytes expected(size_t(3 * 512 * 512));
      Resizer resizer(512, 512, 512, 512, 2);
      resizer.resize(p.image, 512, 512, expected.data(), 3 * 512);
      CHECK(resize_by_kernels(p.image, 512, 512) == expected);
    }
}

// White stays white, also where rounded weights add up to more than one.
void white() {
  Picture p = make_picture(ANOCO_RGB, 123, 77, 0);
  std::fill(p.pixels.begin(), p.pixels.end(), uint8_t{255});
  const Bytes out = resize_by_kernels(p.image, 32, 50);
  CHECK(std::count(out.begin(), out.end(), 255) == int64_t(out.size()));
}

void filling() {
  for (const int width : {1, 16, 37}) {
    const int height = 19, left = width / 3, top = 4, inner_width = width / 2, inner_height = 9;
    Bytes out(size_t(width * height * 3), 7);
    run_pixels("anoco_fill", width, height, out.data(), width, height, left, top, inner_width,
               inner_height, 1, 2, 3);
    for (int y = 0; y < height; ++y)
      for (int x = 0; x < width; ++x)
        for (int c = 0; c < 3; ++c) {
          const bool inside =
              x >= left && x < left + inner_width && y >= top && y < top + inner_height;
          CHECK(out[size_t((y * width + x) * 3 + c)] == (inside ? 7 : c + 1));
        }
  }
}

std::vector<float> map_by_kernels(const AnomalyMapBuilder& maker, int rows, int cols, int stride,
                                  const float* grid, const uint8_t* scored) {
  const AnomalyMapBuilder::Axis &across = maker.across_axis(), &down = maker.down_axis();
  const int width = cols * stride, height = rows * stride;
  std::vector<float> energy(size_t(rows * width)), weight(energy), out(size_t(height * width));
  const auto first_pass = [&](const float* from, std::vector<float>& to) {
    run_pixels("anoco_map_across", width, rows, from, scored, across.first.data(),
               across.weights.data(), int(across.reach), rows, cols, width, to.data());
  };
  first_pass(grid, energy);
  if (scored != nullptr) first_pass(nullptr, weight);
  run_pixels("anoco_map_down", width, height, (const float*)energy.data(),
             (const float*)(scored != nullptr ? weight.data() : nullptr), scored, down.first.data(),
             down.weights.data(), int(down.reach), cols, width, height, stride, out.data());
  return out;
}

void anomaly_maps() {
  const int shapes[][3] = {{1, 1, 1}, {1, 1, 14}, {1, 5, 3}, {6, 1, 2}, {7, 9, 1}, {5, 6, 16}};
  for (const auto& shape : shapes) {
    const int rows = shape[0], cols = shape[1], stride = shape[2];
    const auto patches = size_t(rows * cols);
    AnomalyMapBuilder maker(rows, cols, stride);
    std::vector<float> energy(patches), expected(patches * size_t(stride * stride));
    for (float& e : energy) e = float(generator() % 1000) / 100;
    Bytes scored(patches, 1), some(patches);
    for (uint8_t& c : some) c = generator() % 3 != 0;
    some[0] = 1;
    if (patches > 1) some[1] = 0;
    const uint8_t* choices[] = {nullptr, scored.data(), some.data()};
    for (const uint8_t* choice : choices) {
      maker.make(energy.data(), choice, expected.data());
      const auto got = map_by_kernels(maker, rows, cols, stride, energy.data(), choice);
      for (size_t i = 0; i < got.size();
           ++i)  // if all are scored, the mask divides by weights near one
        CHECK(choice == scored.data() ? std::abs(got[i] - expected[i]) <= 1e-5f * 10
                                      : got[i] == expected[i]);
    }
  }
}

struct Pooled {
  float score;
  int peak;
};

Pooled pool(const std::vector<float>& energy, const Bytes& scored, int top) {
  Pooled out{-1, -1};
  run_rows("anoco_pool", 1, energy.data(), scored.data(), int(energy.size()), top, &out.score,
           &out.peak);
  return out;
}

void pooling() {
  for (const int patches : {1, 4, 5, 255, 700}) {
    std::vector<float> energy(static_cast<size_t>(patches));
    for (float& e : energy) e = float(generator() % 50);  // many ties
    Bytes scored(energy.size());
    for (uint8_t& c : scored) c = generator() % 2 == 0;
    scored.back() = 1;
    std::vector<float> sorted;
    for (size_t p = 0; p < energy.size(); ++p)
      if (scored[p] != 0) sorted.push_back(energy[p]);
    std::sort(sorted.rbegin(), sorted.rend());
    size_t first = 0;
    while (scored[first] == 0 || energy[first] != sorted[0]) ++first;
    for (const int top : {1, int(ANOCO_GPU_LARGEST)}) {
      const size_t count = std::min(size_t(top), sorted.size());
      double sum = 0;
      for (size_t k = 0; k < count; ++k) sum += sorted[k];
      const Pooled got = pool(energy, scored, top);
      CHECK(got.score == float(sum / double(count)) && got.peak == int(first));
    }
    energy[first] = NAN;
    CHECK(std::isnan(pool(energy, scored, 5).score));
    scored[first] = 0;  // the energy of a patch that is not scored may be anything
    if (sorted.size() > 1) CHECK(!std::isnan(pool(energy, scored, 5).score));
    CHECK(std::isnan(pool(energy, Bytes(energy.size(), 0), 5).score));
  }
}

void smoothing() {
  const int shapes[][2] = {{1, 1}, {1, 7}, {9, 1}, {5, 6}, {31, 17}};
  for (const auto& shape : shapes) {
    const int rows = shape[0], cols = shape[1];
    const auto patches = size_t(rows * cols);
    std::vector<float> energy(patches), expected(patches), got(patches, -1);
    for (float& e : energy) e = float(generator() % 100000) / 7;
    Bytes scored(patches);
    for (uint8_t& c : scored) c = generator() % 4 != 0;
    const auto run = [&] {
      run_each("anoco_smooth", int(patches), (const float*)energy.data(),
               (const uint8_t*)scored.data(), rows, cols, anoco::kSmoothSide, got.data());
    };
    run();
    anoco::smooth_grid(energy.data(), scored.data(), rows, cols, expected.data());
    CHECK(got == expected);
    energy[0] = NAN;
    scored[0] = 1;
    run();
    CHECK(std::isnan(got[0]) && (cols == 1 || scored[1] == 0 || std::isnan(got[1])));
    scored[0] = 0;  // the energy of a patch that is not scored may be anything
    run();
    CHECK(std::none_of(got.begin(), got.end(), [](float e) { return std::isnan(e); }));
  }
}

void baseline() {
  std::vector<float> energy(300, 2.0f), baseline(300, 0.5f);
  Bytes scored(300, 1);
  baseline[1] = 3;
  energy[2] = NAN;
  scored[299] = 0;
  auto plain = energy;
  run_each("anoco_subtract_baseline", 300, energy.data(), (const uint8_t*)scored.data(),
           (const float*)baseline.data(), 300);
  CHECK(energy[0] == 1.5f && energy[1] == 0 && std::isnan(energy[2]) && energy[299] == 0);
  run_each("anoco_subtract_baseline", 300, plain.data(), (const uint8_t*)scored.data(),
           (const float*)nullptr, 300);
  CHECK(plain[0] == 2 && std::isnan(plain[2]) && plain[298] == 2 && plain[299] == 0);
}

}  // namespace

int main() {
  resizing();
  many_colours();
  white();
  filling();
  anomaly_maps();
  pooling();
  smoothing();
  baseline();
  return 0;
}
