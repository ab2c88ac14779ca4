// Writes pictures as PNG files, 8-bit RGB and lossless, without a library.
//
// It is made for camera pictures: rows are filtered, and the result is Huffman coded with runs of
// one byte but without a search for other repetitions, which noise does not contain. Files are
// about as large as Pillow's and are written several times as fast.
#pragma once

#include <cstdint>

#include "bundle/bundle.hpp"

namespace anoco {

// Returns the file for width x height x 3 bytes of RGB without gaps.
Bytes write_png(const uint8_t* rgb, int64_t width, int64_t height);

}  // namespace anoco
