// From the bytes of manifest.json and product.json to what they say. Refused (ANOCO_BAD_BUNDLE,
// with the file's name) is what anoco_edge/bundle/schema.py refuses, and a text that is not as
// sealed: tests/attack/bundles.py holds the two readers to one verdict.
#pragma once

#include <string>
#include <string_view>

#include "bundle/schema.hpp"

namespace anoco {

constexpr int64_t kSchemaVersion = 1;
constexpr size_t kMostText = size_t{1} << 24;  // bytes of a document, far above any real one

// The seal is checked last: "points outside" says more than "was changed".
Manifest read_manifest(std::string_view text, const std::string& file);
Product read_product(std::string_view text, const std::string& file);

// Letters and digits of any alphabet, '-', '_', '.', and no dot at the beginning.
bool is_product_name(std::string_view name);

}  // namespace anoco
