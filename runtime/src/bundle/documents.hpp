// Parses manifest.json and product.json. What anoco_edge/bundle/schema.py refuses is refused here
// (ANOCO_BAD_BUNDLE, with the name of the file), and so is a text whose checksum is wrong.
// tests/attack/bundles.py checks that both readers agree.
#pragma once

#include <string>
#include <string_view>

#include "bundle/schema.hpp"

namespace anoco {

constexpr int64_t kSchemaVersion = 1;
constexpr size_t kMostText = size_t{1} << 24;  // bytes of a document, far above any real one

// The checksum is checked last, because "points outside" tells more than "was changed".
Manifest read_manifest(std::string_view text, const std::string& file);
Product read_product(std::string_view text, const std::string& file);

// Tells whether a name consists of letters and digits of any alphabet, '-', '_' and '.', and does
// not begin with a dot.
bool is_product_name(std::string_view name);

}  // namespace anoco
