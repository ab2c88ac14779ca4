// The ignore mask: a PNG file, read without a library.
#pragma once

#include <string>
#include <string_view>

#include "bundle/bundle.hpp"

namespace anoco {

// A pixel is set where one of its colours is above 127, as anoco_edge.pipeline.patch_mask.read_mask has it;
// alpha is dropped. Grey, RGB and palettes of any depth are read. Interlaced files and those with
// an orientation are refused like damaged ones (ANOCO_BAD_BUNDLE): Python stores none, but until
// version 0.1 it kept the user's own file.
Mask decode_mask(std::string_view file, const std::string& name);

}  // namespace anoco
