// The caller's pictures, row by row: how their bytes are to be read, and how they become RGB.
#pragma once

#include <cstdint>

#include "anoco_edge.h"

namespace anoco {

// Resizing treats every channel alike, so it works on the bytes as they lie, whatever their order;
// colours are put right in the result, which is mostly smaller. Only NV12 is converted before.
struct RowLayout {
  int64_t step = 3;      // bytes from pixel to pixel
  int64_t channels = 3;  // of them wanted
  bool swapped = false;  // blue comes first
};

RowLayout row_layout(uint32_t format);

// Row y in its layout: in the picture's own memory, or converted into `scratch` (3 * width bytes).
const uint8_t* picture_row(const anoco_image& image, int64_t y, uint8_t* scratch);

// Leaves out the bytes that are not wanted.
void pack_row(const RowLayout& layout, const uint8_t* row, int64_t width, uint8_t* out);

// A packed row to RGB, where it is: 3 * width bytes.
void color_row(const RowLayout& layout, uint8_t* row, int64_t width);

}  // namespace anoco
