// The sizes of pictures that are inspected, the same as in Python.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

namespace anoco {

constexpr int64_t kLeastSide = 16, kMostSide = 32768;
constexpr int64_t kMostPicturePixels = 100'000'000;

// Says what is wrong with a size, such as "8x640 pixels, too small to inspect: ..."; returns "" if
// nothing is.
inline std::string size_problem(int64_t width, int64_t height) {
  const std::string size = std::to_string(width) + "x" + std::to_string(height) + " pixels";
  if (std::min(width, height) < kLeastSide)
    return size + ", too small to inspect: a picture needs at least 16 pixels on each side";
  if (std::max(width, height) > kMostSide)
    return size + ": at most 32768 on a side are read, cut or scale it first";
  if (width * height > kMostPicturePixels)
    return size + ": at most 100 million are read, cut or scale it first";
  return "";
}

}  // namespace anoco
