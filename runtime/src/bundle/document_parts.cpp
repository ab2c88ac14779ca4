#include "bundle/document_parts.hpp"

#include "bundle/bytes.hpp"
#include "bundle/checksum.hpp"
#include "bundle/documents.hpp"
#include "failure.hpp"

namespace anoco {

std::string path_inside_bundle(const Field& field) {
  const std::string path = field.text();
  const bool odd = path.find('\\') != path.npos || path.find('\0') != path.npos;
  const bool climbs = ("/" + path + "/").find("/../") != path.npos;
  if (path.empty() || path[0] == '/' || odd || climbs)
    field.refuse(anoco::quoted(path) + " points outside the bundle");
  return path;
}

FileRecord file_record(const Field& field) {
  Members members(field);
  FileRecord record;
  record.path = path_inside_bundle(members.need("path"));
  record.sha256 = members.need("sha256").sha256();
  record.size = members.need("size").integer(0);
  members.finish();
  return record;
}

Fit fit(const Field& field) { return static_cast<Fit>(field.choice({"stretch", "letterbox"})); }

Pooling image_pooling(const Field& field) {
  return static_cast<Pooling>(field.choice({kPoolings[0], kPoolings[1], kPoolings[2]}));
}

int64_t length(const Field& field) { return field.integer(1, int64_t{1} << 20); }

void need_object(const Field& field) { Members{field}; }

void version_and_checksum(Members& members) {
  if (const auto version = members.maybe("schema_version"))
    version->integer(kSchemaVersion, kSchemaVersion);
  if (const auto checksum = members.maybe("checksum")) checksum->sha256();
}

Json parse_known(std::string_view text, const std::string& file) {
  Json document = parse_json(text, file);
  // A newer version has fields that are unknown here, but the message must be about the version.
  const Json* version = document.find("schema_version");
  const auto* number = version == nullptr ? nullptr : version->as<int64_t>();
  if (number != nullptr && *number > kSchemaVersion)
    fail(ANOCO_BAD_BUNDLE, file + " has schema version " + std::to_string(*number) +
                               ", this program knows " + std::to_string(kSchemaVersion) +
                               "; update anoco-edge");
  return document;
}

void check_checksum(std::string_view text, const std::string& file) {
  if (!has_valid_checksum(text)) refuse_changed(file);
}

void refuse_changed(const std::string& file) {
  fail_damaged(file + " is not what was written: its checksum differs");
}

}  // namespace anoco
