#include "teaching/document.hpp"

#include <ctime>

namespace anoco {

using Object = Json::Object;
using Array = Json::Array;

Json new_document(const std::string& product, Pooling pooling) {
  const Json none{nullptr};
  return Object{
      {"schema_version", 1},
      {"checksum", std::string(64, '0')},
      {"name", product},
      {"generation", 0},
      {"parent", none},
      {"changed", ""},
      {"change", ""},
      {"lambda", 1.0},
      {"floor", 0.05},
      {"metric", "product"},
      {"pooling", kPoolings[size_t(pooling)]},
      {"tta", "none"},
      {"tta_seed", 0},
      {"views", Array{}},
      {"tiles", none},
      {"any_size", false},
      {"min_area", 0.0},
      {"region", none},
      {"mask", none},
      {"threshold", Object{{"kind", "none"}, {"value", none}, {"evidence", Object{}}}},
      {"calibration", none},
      {"baseline", none},
      {"coreset", none},
      {"references", Array{}},
      {"bank", none},
      {"bank_dtype", "float16"},
      {"dropped_patches", 0},
  };
}

Json as_json(const FileRecord& record) {
  return Object{{"path", record.path}, {"sha256", record.sha256}, {"size", record.size}};
}

Json as_json(const Reference& reference) {
  return Object{
      {"name", reference.name},   {"file", as_json(reference.file)}, {"pixels", reference.pixels},
      {"width", reference.width}, {"height", reference.height},      {"views", Array{}},
  };
}

std::string now() {
  const std::time_t seconds = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[40];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S+00:00", &utc);
  return text;
}

}  // namespace anoco
