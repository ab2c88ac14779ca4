// The content of a file, and a look at one that somebody else holds.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace anoco {

using Bytes = std::vector<unsigned char>;

inline std::string_view view(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// As Python's repr shows it: in quotes, on one line whatever it holds. (Call it anoco::quoted where
// <filesystem> is included, which brings a std::quoted.)
std::string quoted(std::string_view text);

}  // namespace anoco
