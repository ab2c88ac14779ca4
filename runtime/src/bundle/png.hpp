// Reads the ignore mask, a PNG file, without a library.
#pragma once

#include <string>
#include <string_view>

#include "bundle/bundle.hpp"

namespace anoco {

// A pixel is set where one of its color channels is above 127, as in anoco_edge's patch_mask; alpha
// is ignored. Gray, RGB and palette images of any depth are read. Interlaced files and files with
// an orientation are refused like damaged ones (ANOCO_BAD_BUNDLE): Python writes none, but until
// version 0.1 it kept the user's own file.
Mask decode_mask(std::string_view file, const std::string& name);

}  // namespace anoco
