#include "picture/formats.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "api/boundary.hpp"
#include "picture/prepare.hpp"
#include "picture/size.hpp"

namespace anoco {
namespace {

constexpr int64_t kMostStride = int64_t{1} << 31;

int64_t bytes_of_pixel(uint32_t format) {
  return format == ANOCO_NV12 ? 1 : row_layout(format).step;  // its luma
}

void check_size(int64_t width, int64_t height) {
  const bool fits = std::min(width, height) >= kLeastSide && std::max(width, height) <= kMostSide &&
                    width * height <= kMostPicturePixels;
  if (!fits) fail(ANOCO_BAD_PICTURE, "the picture is " + size_problem(width, height));
}

void check_stride(int64_t stride, int64_t least, const char* name) {
  if (stride < least || stride > kMostStride)
    fail(ANOCO_INVALID_ARGUMENT, std::string(name) + " is " + std::to_string(stride) +
                                     " bytes: a row has " + std::to_string(least) +
                                     "; give 0 where rows have no gaps");
}

void check_colors(const anoco_image& image) {
  if (image.matrix > ANOCO_BT709 || image.range > ANOCO_FULL_RANGE)
    fail(ANOCO_INVALID_ARGUMENT,
         "the picture's matrix is " + std::to_string(image.matrix) + " and its range " +
             std::to_string(image.range),
         "use ANOCO_BT601 or ANOCO_BT709, and ANOCO_LIMITED_RANGE or ANOCO_FULL_RANGE");
  if (image.format != ANOCO_NV12 && (image.matrix != 0 || image.range != 0))
    fail(ANOCO_INVALID_ARGUMENT, "matrix and range are set for a picture that is not NV12",
         "leave them 0, or set the format to ANOCO_NV12");
}

uint8_t clip8(int32_t value) { return uint8_t(std::min(std::max(value, 0), 255)); }

// The factors of NV12's colors in 20 bits of fixed point. With kr and kb of the matrix and c = 255
// / 224, or 1 in full range: red_v = 2 (1 - kr) c, blue_u = 2 (1 - kb) c, green_v = -kr red_v / (1
// - kr - kb), green_u = -kb blue_u / (1 - kr - kb); luma = 255 / 219, or 1.
struct Nv12Colors {
  int32_t black, luma, red_v, green_v, green_u, blue_u;
};

// By matrix and range. The first has the numbers and the rounding of OpenCV's COLOR_YUV2RGB_NV12,
// so that a program that switches to NV12 gets the same pixels.
constexpr Nv12Colors kNv12Colors[2][2] = {
    {{16, 1220542, 1673527, -852492, -409993, 2116026},
     {0, 1048576, 1470104, -748826, -360853, 1858077}},
    {{16, 1220945, 1879825, -558796, -223607, 2215014},
     {0, 1048576, 1651297, -490864, -196424, 1945738}},
};

void nv12_row(const Nv12Colors& colors, const uint8_t* luma, const uint8_t* chroma, int64_t width,
              uint8_t* out) {
  constexpr int32_t kHalf = 1 << 19, kBits = 20;
  for (int64_t x = 0; x < width; x += 2, luma += 2, chroma += 2) {
    const int32_t u = chroma[0] - 128, v = chroma[1] - 128;
    const int32_t red = colors.red_v * v + kHalf, blue = colors.blue_u * u + kHalf;
    const int32_t green = colors.green_v * v + colors.green_u * u + kHalf;
    for (int i = 0; i < 2; ++i, out += 3) {
      const int32_t y = std::max(luma[i] - colors.black, 0) * colors.luma;
      out[0] = clip8((y + red) >> kBits);
      out[1] = clip8((y + green) >> kBits);
      out[2] = clip8((y + blue) >> kBits);
    }
  }
}

}  // namespace

RowLayout row_layout(uint32_t format) {
  switch (format) {
    case ANOCO_BGR: return {3, 3, true};
    case ANOCO_RGBA: return {4, 3, false};
    case ANOCO_BGRA: return {4, 3, true};
    case ANOCO_GREY: return {1, 1, false};
    default: return {3, 3, false};  // RGB, and what NV12 is converted to
  }
}

const uint8_t* picture_row(const anoco_image& image, int64_t y, uint8_t* scratch) {
  const uint8_t* row = static_cast<const uint8_t*>(image.data) + y * image.stride;
  if (image.format != ANOCO_NV12) return row;
  const uint8_t* chroma = static_cast<const uint8_t*>(image.chroma) + y / 2 * image.chroma_stride;
  nv12_row(kNv12Colors[image.matrix][image.range], row, chroma, image.width, scratch);
  return scratch;
}

void pack_row(const RowLayout& layout, const uint8_t* row, int64_t width, uint8_t* out) {
  if (layout.step == layout.channels) {
    std::memcpy(out, row, size_t(width * layout.channels));
    return;
  }
  for (int64_t x = 0; x < width; ++x)
    for (int64_t c = 0; c < 3; ++c) out[3 * x + c] = row[4 * x + c];
}

void color_row(const RowLayout& layout, uint8_t* row, int64_t width) {
  if (layout.swapped)
    for (int64_t x = 0; x < width; ++x) std::swap(row[3 * x], row[3 * x + 2]);
  if (layout.channels == 1)  // from the end, so that no pixel is overwritten before it is read
    for (int64_t x = width - 1; x >= 0; --x) std::memset(row + 3 * x, row[x], 3);
}

anoco_image checked_image(const anoco_image* given) {
  need(given, "image");
  anoco_image image = read_options(given, anoco_image ANOCO_IMAGE_INIT);
  if (image.format < ANOCO_RGB || image.format > ANOCO_NV12)
    fail(ANOCO_BAD_PICTURE, "the picture's format is " + std::to_string(image.format) +
                                ": use ANOCO_RGB or another of that list");
  if (image.memory > ANOCO_DEVICE)
    fail(ANOCO_INVALID_ARGUMENT, "the picture's memory is " + std::to_string(image.memory) +
                                     ": use ANOCO_HOST or ANOCO_DEVICE");
  check_reserved(image.reserved, "the picture's");
  check_colors(image);
  need(image.data, "the picture's data");
  check_size(image.width, image.height);
  const int64_t least = image.width * bytes_of_pixel(image.format);
  if (image.stride == 0) image.stride = least;
  check_stride(image.stride, least, "stride");
  if (image.format != ANOCO_NV12) return image;
  if (image.width % 2 != 0 || image.height % 2 != 0)
    fail(ANOCO_BAD_PICTURE,
         "an NV12 picture of " + std::to_string(image.width) + "x" + std::to_string(image.height) +
             ": both must be even",
         "cut off a row or a column");
  if (image.chroma == nullptr)
    image.chroma = static_cast<const uint8_t*>(image.data) + image.stride * image.height;
  if (image.chroma_stride == 0) image.chroma_stride = image.stride;
  check_stride(image.chroma_stride, image.width, "chroma_stride");
  return image;
}

void check_on_host(const anoco_image& image) {
  if (image.memory == ANOCO_DEVICE)
    fail(ANOCO_BAD_PICTURE,
         "the picture lies on a CUDA device, where only detectors with scorer \"cuda\" read it: "
         "copy it to the host first");
}

void to_rgb(const anoco_image& image, uint8_t* out) {
  const RowLayout layout = row_layout(image.format);
  for (int64_t y = 0; y < image.height; ++y, out += 3 * image.width) {
    const uint8_t* row = picture_row(image, y, out);
    if (row != out) pack_row(layout, row, image.width, out);
    color_row(layout, out, image.width);
  }
}

}  // namespace anoco
