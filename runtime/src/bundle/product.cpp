#include <algorithm>
#include <cmath>

#include "anoco_edge.h"
#include "bundle/bytes.hpp"
#include "bundle/document_parts.hpp"
#include "bundle/documents.hpp"
#include "bundle/unicode.hpp"
#include "failure.hpp"

namespace anoco {
namespace {

constexpr int64_t kMostTiles = 1024;       // as anoco_edge/bundle/schema.py has them
constexpr int64_t kMostPatches = 1 << 15;  // along one axis: a bank numbers them in 16 bits
constexpr int64_t kLeastRotations = 2, kMostRotations = 64;

Affine affine(const Field& field) {
  const std::vector<Field> items = field.items(6);
  Affine view;
  for (size_t i = 0; i < 6; ++i) view[i] = items[i].number();
  const double area = std::abs(view[0] * view[4] - view[1] * view[3]);
  if (!(area > 1e-6)) field.refuse("it is not a view that can be turned back");
  return view;
}

std::vector<Affine> read_views(const std::optional<Field>& field) {
  std::vector<Affine> found;
  if (field)
    for (const Field& view : field->items()) found.push_back(affine(view));
  return found;
}

std::vector<int64_t> starts(const Field& field) {
  std::vector<int64_t> found;
  for (const Field& start : field.items()) found.push_back(start.integer());
  if (found.empty()) field.refuse("at least one is expected");
  return found;
}

Tiles tiles(const Field& field) {
  Members members(field);
  Tiles found;
  found.width = length(members.need("width"));
  found.height = length(members.need("height"));
  found.columns = starts(members.need("columns"));
  found.rows = starts(members.need("rows"));
  if (const auto chosen = members.unless_null("fit")) found.fit = fit(*chosen);
  members.finish();
  return found;
}

std::vector<Point> region(const Field& field) {
  Members members(field);
  const Field points = members.need("points");
  members.finish();
  std::vector<Point> found;
  for (const Field& point : points.items()) {
    const std::vector<Field> xy = point.items(2);
    found.emplace_back(xy[0].number(), xy[1].number());
  }
  if (found.size() < 3) points.refuse("at least three points are expected");
  return found;
}

Reference reference(const Field& field) {
  Members members(field);
  Reference found;
  found.name = members.need("name").text();
  found.file = file_record(members.need("file"));
  found.pixels = members.need("pixels").sha256();
  found.width = length(members.need("width"));
  found.height = length(members.need("height"));
  found.views = read_views(members.maybe("views"));
  members.finish();
  return found;
}

void check_coreset(const Field& field) {
  Members members(field);
  members.need("max_patches").integer(1);
  members.need("seed").integer(0);
  if (const auto considered = members.maybe("considered")) considered->integer(0);
  if (const auto duplicates = members.maybe("duplicates")) duplicates->integer(0);
  if (const auto radius = members.maybe("radius")) radius->at_least(0);
  members.finish();
}

void check_calibration_picture(const Field& field) {
  Members members(field);
  members.need("name").text();
  members.need("group").text();
  if (const auto role = members.maybe("role")) role->choice({"threshold", "baseline", "choice"});
  if (const auto score = members.unless_null("score")) score->at_least(0);
  members.need("pixels").sha256();
  length(members.need("width"));
  length(members.need("height"));
  if (const auto file = members.unless_null("file")) file_record(*file);
  members.finish();
}

void check_calibration(const Field& field) {
  Members members(field);
  const Field rate = members.need("false_reject");
  if (rate.above(0) >= 1) rate.refuse("it is not less than 1");
  if (const auto fewer = members.maybe("accept_fewer")) fewer->flag();
  if (const auto sigmas = members.unless_null("sigmas")) sigmas->at_least(0);
  members.need("source").choice({"pictures", "references"});
  if (const auto pictures = members.maybe("pictures"))
    for (const Field& picture : pictures->items()) check_calibration_picture(picture);
  members.finish();
}

// Checks which pictures chose the settings. Only calibration in Python needs them.
void check_tuning(const Field& field) {
  Members members(field);
  members.need("seed").integer(0);
  members.need("words").text();
  const Field pictures = members.need("pictures");
  const std::vector<Field> hashes = pictures.items();
  for (const Field& hash : hashes) hash.sha256();
  if (hashes.empty()) pictures.refuse("at least one is expected");
  members.finish();
}

void check_within(const Field& field, double least, double most) {
  const double found = field.at_least(least);
  if (found > most) field.refuse(repr(found) + " is more than " + repr(most));
}

// Checks the limits of picture quality. Only a line, which is in Python, compares pictures with
// them.
void check_picture_limits(const Field& field) {
  Members members(field);
  check_within(members.need("min_brightness"), 0, 255);
  check_within(members.need("max_saturated"), 0, 1);
  members.need("min_sharpness").at_least(0);
  if (const auto likeness = members.unless_null("min_likeness")) check_within(*likeness, -1, 1);
  members.need("pictures").integer(1);
  members.finish();
}

Baseline baseline(const Field& field) {
  Members members(field);
  Baseline found;
  found.file = file_record(members.need("file"));
  found.sigmas = members.need("sigmas").at_least(0);
  members.need("pictures").integer(2);
  members.finish();
  return found;
}

void read_threshold(const Field& field, Product& product) {
  Members members(field);
  if (const auto kind = members.maybe("kind"))
    product.threshold_kind =
        static_cast<ThresholdKind>(kind->choice({"none", "provisional", "conformal", "manual"}));
  const auto value = members.unless_null("value");
  if (value) product.threshold = value->above(0);
  if (const auto evidence = members.maybe("evidence")) {
    need_object(*evidence);
    const Json* lost = evidence->json().find("lost");
    product.calibration_lost = lost != nullptr && !lost->is_null();
  }
  members.finish();
  if ((product.threshold_kind == ThresholdKind::none) == value.has_value())
    field.refuse("a threshold has a value exactly when its kind is not 'none'");
}

std::string product_name(const Field& field) {
  const std::string name = field.text();
  if (!is_product_name(name))
    field.refuse(anoco::quoted(name) + " is not a product name: letters, digits, '-', '_', '.'");
  return name;
}

size_t check_energies(const std::optional<Field>& field) {
  if (!field) return 0;
  const std::vector<Field> energies = field->items();
  for (const Field& energy : energies) energy.at_least(0);
  return energies.size();
}

void check_augmentation_choice(const Field& field) {
  Members members(field);
  if (const auto method = members.maybe("method"))
    method->choice(
        {"none yet", "one reference", "references against each other", "held-out pictures"});
  const size_t plain = check_energies(members.maybe("plain"));
  const size_t turned = check_energies(members.maybe("turned"));
  if (const auto ratio = members.unless_null("ratio")) ratio->at_least(0);
  if (const auto limit = members.unless_null("limit")) limit->at_least(0);
  if (const auto words = members.maybe("words")) words->text();
  members.finish();
  if (plain != turned) field.refuse("every pair has an energy as it lies and one turned");
}

// Reads how references were turned and mirrored. The views themselves are recorded, so only
// teaching needs it.
void read_rotations(const Field& document, Members& members, Product& product) {
  const auto rotations = members.unless_null("rotations");
  if (rotations) rotations->integer(kLeastRotations, kMostRotations);
  if (const auto flips = members.maybe("flips")) product.flips = flips->flag();
  const auto choice = members.unless_null("augmentation_choice");
  if (choice) check_augmentation_choice(*choice);
  if (rotations.has_value() != (product.tta == Tta::rotations))
    document.refuse("`rotations` is a number exactly when `tta` is 'rotations'");
  const bool drawn = product.tta == Tta::references || product.tta == Tta::paper;
  if (drawn && (product.flips || choice))
    document.refuse("flips and a choice by auto are for 'none' and 'rotations'");
}

// Reads how patches are scored.
void read_method(Members& members, Product& product) {
  if (const auto lambda = members.maybe("lambda")) product.lambda = lambda->above(0);
  if (const auto kind = members.maybe("lambda_kind"))
    product.lambda_relative = kind->choice({"absolute", "relative"}) == 1;
  if (const auto floor = members.maybe("floor")) {
    product.floor = floor->at_least(0);
    if (product.floor >= 1) floor->refuse(repr(product.floor) + " is not less than 1");
  }
  if (const auto metric = members.maybe("metric"))  // in the order of ANOCO_METRIC_...
    product.metric = static_cast<uint32_t>(metric->choice({"product", "l2", "cosine"}));
  if (const auto pooling = members.maybe("pooling")) product.pooling = image_pooling(*pooling);
  if (const auto tta = members.maybe("tta"))
    product.tta = static_cast<Tta>(tta->choice({"none", "rotations", "references", "paper"}));
  if (const auto seed = members.maybe("tta_seed")) seed->integer(0);
  product.views = read_views(members.maybe("views"));
}

// Reads which parts of a picture are inspected.
void read_places(Members& members, Product& product) {
  if (const auto found = members.unless_null("tiles")) product.tiles = tiles(*found);
  if (const auto found = members.maybe("any_size")) product.any_size = found->flag();
  if (const auto found = members.maybe("min_area")) product.min_area = found->at_least(0);
  if (const auto found = members.unless_null("region")) product.region = region(*found);
  if (const auto found = members.unless_null("mask")) product.mask = file_record(*found);
}

// Reads what a picture is compared with, and the score from which on it is anomalous.
void read_evidence(Members& members, Product& product) {
  if (const auto found = members.maybe("threshold")) read_threshold(*found, product);
  if (const auto found = members.unless_null("calibration")) {
    check_calibration(*found);
    product.calibrated = true;
  }
  if (const auto found = members.unless_null("baseline")) product.baseline = baseline(*found);
  if (const auto found = members.unless_null("coreset")) {
    check_coreset(*found);
    product.thinned = true;
  }
  if (const auto found = members.unless_null("tuning")) check_tuning(*found);
  if (const auto found = members.maybe("references"))
    for (const Field& item : found->items()) product.references.push_back(reference(item));
  if (const auto found = members.unless_null("bank")) product.bank = file_record(*found);
  if (const auto found = members.maybe("bank_dtype"))
    product.bank_half = found->choice({"float16", "float32"}) == 0;
  if (const auto found = members.maybe("dropped_patches"))
    product.dropped_patches = found->integer(0);
  if (const auto found = members.unless_null("cpu_precision")) {
    found->choice({"bf16"});
    product.bf16 = true;
  }
  if (const auto found = members.maybe("merged_patches")) found->integer(0);
  if (const auto found = members.maybe("merge_distance"))
    if (const double distance = found->at_least(0); distance >= 1)
      found->refuse(repr(distance) + " is not less than 1");
  if (const auto found = members.unless_null("picture_limits")) check_picture_limits(*found);
}

Product product(const Field& document) {
  Members members(document);
  Product found;
  version_and_checksum(members);
  found.name = product_name(members.need("name"));
  found.generation = members.need("generation").integer(1);
  if (const auto parent = members.unless_null("parent")) parent->integer(1);
  members.need("changed").text();
  members.need("change").text();
  read_method(members, found);
  read_places(members, found);
  read_evidence(members, found);
  read_rotations(document, members, found);
  members.finish();
  return found;
}

// Tells whether windows of `side` pixels that begin at these positions cover `whole` pixels on the
// patch grid.
bool cover(const std::vector<int64_t>& starts, int64_t side, int64_t whole, int64_t stride) {
  if (starts.front() != 0 || starts.back() != whole - side) return false;
  for (size_t i = 1; i < starts.size(); ++i) {
    const int64_t before = starts[i - 1], after = starts[i];
    // The numbers are compared before they are subtracted, because a document may contain any
    // number.
    if (after <= before || after > whole || (after - before) % stride != 0 || after - before > side)
      return false;
  }
  return true;
}

// Returns the first character of a text and removes it; returns 0 if the text is not UTF-8.
uint32_t take_point(std::string_view& text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const size_t length = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  if (length > text.size()) {
    text = {};
    return 0;
  }
  uint32_t point = length == 1 ? first : first & (0x7Fu >> length);
  for (size_t i = 1; i < length; ++i)
    point = point << 6 | (static_cast<unsigned char>(text[i]) & 0x3Fu);
  text.remove_prefix(length);
  return point;
}

[[noreturn]] void refuse_tiles(const std::string& what) {
  fail(ANOCO_BAD_BUNDLE, what + "; set them again: anoco-edge product set --tiles");
}

// Checks the tiles before memory is allocated for them.
void check_tiles(const Tiles& tiles, int64_t stride) {
  const auto number = [](int64_t value) { return std::to_string(value); };
  const auto across = static_cast<int64_t>(tiles.columns.size()),
             down = static_cast<int64_t>(tiles.rows.size());
  if (across * down > kMostTiles)
    refuse_tiles(number(across) + " x " + number(down) + " tiles are more than " +
                 number(kMostTiles));
  if (std::max(tiles.width, tiles.height) > kMostPatches * stride)
    refuse_tiles("tiles of " + number(tiles.width) + "x" + number(tiles.height) +
                 " pixels make more than " + number(kMostPatches) + " patches one way");
  if (tiles.width * tiles.height > kMostPixels)
    refuse_tiles("tiles of " + number(tiles.width) + "x" + number(tiles.height) +
                 " pixels together: at most 100 million are inspected");
}

}  // namespace

bool is_product_name(std::string_view name) {
  if (name.empty() || name[0] == '.') return false;
  while (!name.empty()) {
    const uint32_t point = take_point(name);
    if (!is_alphanumeric(point) && point != '-' && point != '_' && point != '.') return false;
  }
  return true;
}

Product read_product(std::string_view text, const std::string& file) {
  const Json document = parse_known(text, file);
  Product found = product(Field(document, file));
  check_checksum(text, file);
  return found;
}

InputContract InputContract::tiled(const std::optional<Tiles>& tiles) const {
  if (!tiles) return *this;
  const auto check = [&](const std::vector<int64_t>& starts, int64_t side, int64_t whole) {
    if (cover(starts, side, whole, stride)) return;
    std::string list;
    for (const int64_t start : starts) list += (list.empty() ? "" : ", ") + std::to_string(start);
    refuse_tiles("tiles at " + list + " do not cover " + std::to_string(whole) + " pixels");
  };
  check_tiles(*tiles, stride);
  check(tiles->columns, width, tiles->width);
  check(tiles->rows, height, tiles->height);
  InputContract whole = *this;
  whole.width = tiles->width;
  whole.height = tiles->height;
  whole.cols = tiles->width / stride;
  whole.rows = tiles->height / stride;
  whole.fit = tiles->fit.value_or(fit);
  return whole;
}

}  // namespace anoco
