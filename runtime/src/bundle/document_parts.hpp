// Reads the parts that manifest.json and product.json have in common.
#pragma once

#include <string>
#include <string_view>

#include "bundle/fields.hpp"
#include "bundle/schema.hpp"
#include "picture/size.hpp"

namespace anoco {

// Returns a relative path after checking that it stays inside the bundle.
std::string path_inside_bundle(const Field& field);
FileRecord file_record(const Field& field);
Fit fit(const Field& field);
Pooling image_pooling(const Field& field);
// Reads a number of pixels, patches or features along one axis. It must lie between 1 and 2^20, so
// that the product of three of them does not overflow.
int64_t length(const Field& field);
// The most pixels of the model's input, and of all tiles together: as many as a picture may have.
constexpr int64_t kMostPixels = kMostPicturePixels;
void need_object(const Field& field);
void version_and_checksum(Members& members);

// Parses a document and refuses one of a newer schema version.
Json parse_known(std::string_view text, const std::string& file);
void check_checksum(std::string_view text, const std::string& file);

// Refuses a file whose hash differs from the recorded one.
[[noreturn]] void refuse_changed(const std::string& file);

}  // namespace anoco
