// Reads the caller's pictures row by row and converts them to RGB.
#pragma once

#include <cstdint>

#include "anoco_edge.h"

namespace anoco {

// Resizing treats all channels alike, so it works on the bytes in their original order; colors are
// reordered in the result, which is mostly smaller. Only NV12 is converted before.
struct RowLayout {
  int64_t step = 3;      // bytes per pixel
  int64_t channels = 3;  // bytes of a pixel that are used
  bool swapped = false;  // blue comes first
};

RowLayout row_layout(uint32_t format);

// Returns row y in its layout: in the picture's own memory, or converted into `scratch` (3 * width
// bytes).
const uint8_t* picture_row(const anoco_image& image, int64_t y, uint8_t* scratch);

// Copies the wanted bytes of a row.
void pack_row(const RowLayout& layout, const uint8_t* row, int64_t width, uint8_t* out);

// Converts a packed row to RGB in place: 3 * width bytes.
void color_row(const RowLayout& layout, uint8_t* row, int64_t width);

}  // namespace anoco
