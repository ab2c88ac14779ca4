// Pictures into PNG files, without a library: 8-bit RGB, lossless.
//
// Made for pictures of cameras: rows are filtered, and what is left is Huffman coded, with runs of
// one byte but no search for other repetitions, which noise does not have. Files come out about as
// large as Pillow's, several times as fast.
#pragma once

#include <cstdint>

#include "bundle/bundle.hpp"

namespace anoco {

// The file of width x height x 3 bytes of RGB without gaps.
Bytes write_png(const uint8_t* rgb, int64_t width, int64_t height);

}  // namespace anoco
