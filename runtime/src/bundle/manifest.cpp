#include <algorithm>

#include "bundle/document_parts.hpp"
#include "bundle/documents.hpp"

namespace anoco {
namespace {

bool weights_are_random(const Field& field) {
  Members members(field);
  members.need("source").text();
  members.need("sha256").sha256();
  members.need("license").text();
  const auto random = members.maybe("random");
  members.finish();
  return random && random->flag();
}

void read_backbone(const Field& field, Manifest& manifest) {
  Members members(field);
  manifest.backbone = members.need("id").text();
  members.need("architecture").text();
  members.need("tap").text();
  if (const auto scales = members.maybe("tap_scales"))
    for (const Field& scale : scales->items()) scale.number();
  members.need("feature_norm").choice({"none", "layernorm", "model"});
  members.need("pooling").choice({"none", "avg3x3"});
  manifest.precision = "fp32";
  if (const auto precision = members.maybe("precision")) {
    precision->choice({"fp32", "fp16", "bf16", "int8"});
    manifest.precision = precision->text();
  }
  if (const auto pooling = members.maybe("image_pooling"))
    manifest.image_pooling = image_pooling(*pooling);
  manifest.random_weights = weights_are_random(members.need("weights"));
  members.finish();
}

InputContract input_contract(const Field& field) {
  Members members(field);
  InputContract input;
  input.width = length(members.need("width"));
  input.height = length(members.need("height"));
  if (const auto found = members.maybe("fit")) input.fit = fit(*found);
  if (const auto fill = members.maybe("fill")) {
    const std::vector<Field> colors = fill->items(3);
    for (size_t i = 0; i < 3; ++i) input.fill[i] = static_cast<uint8_t>(colors[i].integer(0, 255));
  }
  input.stride = length(members.need("stride"));
  input.rows = length(members.need("rows"));
  input.cols = length(members.need("cols"));
  input.dim = length(members.need("dim"));
  members.finish();
  if (input.cols * input.stride != input.width || input.rows * input.stride != input.height)
    field.refuse("rows and cols times stride must give height and width");
  if (input.width * input.height > kMostPixels)
    field.refuse("the input has more than 100 million pixels");
  return input;
}

void check_plan(const Field& field) {
  Members members(field);
  path_inside_bundle(members.need("path"));
  members.need("engine").choice({"tensorrt-rtx"});
  members.need("version").text();
  const Field target = members.need("target");
  const std::string name = target.text();
  const auto digits =
      std::count_if(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (name.substr(0, 2) != "sm" || digits < 2 || digits > 3 ||
      name.size() != 2 + static_cast<size_t>(digits))
    target.refuse("'sm' and two or three digits are expected");
  members.need("max_batch").integer(1);
  members.finish();
}

Manifest manifest(const Field& document) {
  Members members(document);
  Manifest found;
  version_and_checksum(members);
  members.need("created").text();
  const Field tools = members.need("tools");
  need_object(tools);
  for (const auto& [tool, version] : *tools.json().as<Json::Object>())
    tools.at(tool, version).text();
  read_backbone(members.need("backbone"), found);
  found.input = input_contract(members.need("input"));
  need_object(members.need("parity"));
  for (const Field& file : members.need("files").items()) found.files.push_back(file_record(file));
  if (const auto plans = members.maybe("plans"))
    for (const Field& plan : plans->items()) check_plan(plan);
  members.finish();
  return found;
}

}  // namespace

Manifest read_manifest(std::string_view text, const std::string& file) {
  const Json document = parse_known(text, file);
  Manifest found = manifest(Field(document, file));
  check_checksum(text, file);
  return found;
}

}  // namespace anoco
