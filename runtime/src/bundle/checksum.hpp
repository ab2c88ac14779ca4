// The self-checksum of manifest.json and product.json, as anoco_edge/bundle/checksum.py makes it:
// the SHA-256 of the document's own bytes, taken with the 64 digits of the checksum written as
// zeros.
#pragma once

#include <string>
#include <string_view>

#include "bundle/json.hpp"

namespace anoco {

bool has_valid_checksum(std::string_view text);

// The bytes to write for a document (an object), whose checksum is filled in.
std::string write_with_checksum(Json document);

}  // namespace anoco
