// product.json while it is changed: what is not touched is written back as it was.
#pragma once

#include <string>
#include <vector>

#include "bundle/json.hpp"
#include "bundle/schema.hpp"

namespace anoco {

// A product that has been taught nothing, with the defaults of anoco_edge/bundle/schema.py.
Json new_document(const std::string& product);

// An object with path, sha256 and size.
Json as_json(const FileRecord& record);
Json as_json(const Reference& reference);

// The time in UTC, to the second, ISO 8601.
std::string now();

}  // namespace anoco
