// From the bytes of manifest.json and product.json to what they say. Refused (ANOCO_BAD_BUNDLE,
// with the file's name) is what anoco_edge/bundle/schema.py refuses, and a text that is not as
// sealed. Stricter than pydantic, which turns "5" into 5: nothing that wrote a bundle ever needed
// that.
#pragma once

#include <string>
#include <string_view>

#include "bundle/schema.hpp"

namespace anoco {

constexpr int64_t kSchemaVersion = 1;

// The seal is checked last: "points outside" says more than "was changed".
Manifest read_manifest(std::string_view text, const std::string& file);
Product read_product(std::string_view text, const std::string& file);

// Letters, digits, '-', '_', '.', and no dot at the beginning. Of other alphabets everything counts
// as a letter here, so that Python's names are understood; new ones should be plain.
bool is_product_name(std::string_view name);

}  // namespace anoco
