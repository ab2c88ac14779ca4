// The folder of the user's cache that Python (anoco_edge/machine.py) and this library share.
#pragma once

#include <filesystem>

namespace anoco {

// $XDG_CACHE_HOME/anoco-edge, or below ~/.cache.
std::filesystem::path cache_folder();

}  // namespace anoco
