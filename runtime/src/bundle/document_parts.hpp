// What manifest.json and product.json have in common.
#pragma once

#include <string>
#include <string_view>

#include "bundle/fields.hpp"
#include "bundle/schema.hpp"
#include "picture/size.hpp"

namespace anoco {

// A relative path that stays inside the bundle.
std::string path_inside_bundle(const Field& field);
FileRecord file_record(const Field& field);
Fit fit(const Field& field);
// Of pixels, patches or numbers a patch along one axis: from 1 to 2^20, so that no product of three
// overflows.
int64_t length(const Field& field);
// Of the model's input and of all tiles together: what a picture may have at most.
constexpr int64_t kMostPixels = kMostPicturePixels;
void need_object(const Field& field);
void version_and_checksum(Members& members);

// The document, of a schema version that is known.
Json parse_known(std::string_view text, const std::string& file);
void check_checksum(std::string_view text, const std::string& file);

// The line for a file whose hash is another.
[[noreturn]] void refuse_changed(const std::string& file);

}  // namespace anoco
