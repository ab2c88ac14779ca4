// The content of a file, and a view of it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace anoco {

using Bytes = std::vector<unsigned char>;

inline std::string_view view(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Quotes a text as Python's repr does, on one line whatever it contains. Call it anoco::quoted
// where <filesystem> is included, which brings a std::quoted.
std::string quoted(std::string_view text);

}  // namespace anoco
