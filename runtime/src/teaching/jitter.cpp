#include "teaching/jitter.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "picture/augmentation.hpp"

namespace anoco {
namespace {

struct Jitter {
  double shift_x, shift_y;  // in widths and heights
  double cosine, sine;      // of the rotation
  double light;
};

// The numbers that NumPy draws. They are written out because Pillow rounds the numbers of a
// rotation to 15 digits:
//   rng = numpy.random.default_rng(0)
//   for _ in range(8):
//       shift = rng.uniform(-0.01, 0.01, 2)
//       angle = -math.radians(rng.uniform(-2, 2) % 360)
//       light = rng.uniform(0.95, 1.05)
//       print(*shift, round(math.cos(angle), 15), round(math.sin(angle), 15), light)
constexpr std::array<Jitter, kJitterCount> kJitters{{
    {0.002739233746429086, -0.004604265724722594, 0.99948656788891, 0.032040608759008,
     0.9516527635528529},
    {0.006265404784005448, 0.008255111545554436, 0.999972289230753, -0.007444512785068,
     1.0229496560984},
    {0.0008724998293084575, 0.008701448475755364, 0.999756892330023, -0.022048950964055,
     0.9502738500170148},
    {0.007148085531751386, -0.009328288493890714, 0.999871474613695, -0.01603228785405,
     0.9675655620602559},
    {0.007263578446997732, 0.0008292244049818345, 0.99990224297405, 0.013982292210619,
     0.9922687221197658},
    {-0.00943360657709074, -0.007514334470008721, 0.999929054976627, -0.011911549586386,
     1.014718951157425},
    {0.0023077022296250777, -0.002326448914762331, 0.999397605896954, -0.034704831471078,
     1.048083533877623},
    {0.0037108396896138943, 0.0030091855253563254, 0.999913460242805, -0.013155684142619,
     0.9888921423979103},
}};

// Returns the transform that Pillow's Image.rotate uses, computed in the same steps.
Affine turned(const Jitter& jitter, int64_t width, int64_t height) {
  const double center_x = double(width) / 2, center_y = double(height) / 2;
  const double x = -center_x - std::nearbyint(jitter.shift_x * double(width));
  const double y = -center_y - std::nearbyint(jitter.shift_y * double(height));
  return {jitter.cosine, jitter.sine,   jitter.cosine * x + jitter.sine * y + 0.0 + center_x,
          -jitter.sine,  jitter.cosine, -jitter.sine * x + jitter.cosine * y + 0.0 + center_y};
}

// Returns the median color of the first and the last row, which replaces what was rotated out of
// view.
std::array<uint8_t, 3> edge_color(const uint8_t* rgb, int64_t width, int64_t height) {
  std::array<uint8_t, 3> color{};
  std::vector<uint8_t> values;
  for (size_t channel = 0; channel < color.size(); ++channel) {
    values.clear();
    for (const uint8_t* row : {rgb, rgb + (height - 1) * width * 3})
      for (int64_t x = 0; x < width; ++x) values.push_back(row[x * 3 + int64_t(channel)]);
    // For an even number of values the two in the middle are averaged, without the fraction.
    const auto middle = values.begin() + width;
    std::nth_element(values.begin(), middle, values.end());
    const int below = *std::max_element(values.begin(), middle);
    color[channel] = static_cast<uint8_t>((below + *middle) / 2);
  }
  return color;
}

}  // namespace

std::vector<uint8_t> jittered(const uint8_t* rgb, int64_t width, int64_t height, int number) {
  const Jitter& jitter = kJitters[size_t(number)];
  std::vector<uint8_t> view(size_t(width * height * 3));
  warp(rgb, width, height, turned(jitter, width, height), edge_color(rgb, width, height),
       view.data());
  std::array<uint8_t, 256> lit{};
  for (size_t value = 0; value < lit.size(); ++value)
    lit[value] =
        static_cast<uint8_t>(std::nearbyint(std::min(double(value) * jitter.light, 255.0)));
  for (uint8_t& value : view) value = lit[value];
  return view;
}

}  // namespace anoco
