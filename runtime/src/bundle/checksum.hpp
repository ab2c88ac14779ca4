// The checksum inside manifest.json and product.json, as anoco_edge/bundle/checksum.py computes it:
// the SHA-256 of the document's own bytes, computed with the 64 digits of the checksum replaced by
// zeros.
#pragma once

#include <string>
#include <string_view>

#include "bundle/json.hpp"

namespace anoco {

bool has_valid_checksum(std::string_view text);

// Returns the text of a document (an object) with its checksum filled in.
std::string write_with_checksum(Json document);

}  // namespace anoco
