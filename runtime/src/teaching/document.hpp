// Edits product.json; members that are not changed are written back as they were.
#pragma once

#include <string>
#include <vector>

#include "bundle/json.hpp"
#include "bundle/schema.hpp"

namespace anoco {

// Returns the document of a product without references, with the defaults of
// anoco_edge/bundle/schema.py and the pooling of the bundle.
Json new_document(const std::string& product, Pooling pooling);

// Returns an object with path, sha256 and size.
Json as_json(const FileRecord& record);
Json as_json(const Reference& reference);

// Returns the time in UTC to the second, in ISO 8601.
std::string now();

}  // namespace anoco
