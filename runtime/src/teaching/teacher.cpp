#include "teaching/teacher.hpp"

#include <algorithm>
#include <utility>

#include "bundle/commit.hpp"
#include "bundle/documents.hpp"
#include "bundle/files.hpp"
#include "bundle/json.hpp"
#include "failure.hpp"
#include "teaching/document.hpp"
#include "teaching/enrollment.hpp"

namespace anoco {
namespace {

constexpr char kDefaultProduct[] = "default", kProductFile[] = "product.json";
constexpr double kWait = 60;  // seconds, for another process that changes the product

struct StoredProduct {
  Product product;
  Json document;
};

// Returns the product as it is on disk now, or a new one.
StoredProduct read_stored_product(const Bundle& bundle, const std::string& name) {
  const std::vector<std::string> names = bundle.products();
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    Product fresh;
    fresh.name = name;
    fresh.pooling = bundle.manifest().image_pooling;
    return {fresh, new_document(name, fresh.pooling)};
  }
  Product product = bundle.product(name);
  const std::filesystem::path path = bundle.product_folder(name) / kProductFile;
  const Bytes text = bundle.product_text(name);
  return {std::move(product), parse_json(view(text), path.string())};
}

// Python accepts letters of any alphabet; names that are created here are ASCII.
void check_new_name(const std::string& name) {
  const bool plain = std::all_of(name.begin(), name.end(), [](char c) { return c > 0; });
  if (!plain || !is_product_name(name))
    fail(ANOCO_INVALID_ARGUMENT,
         anoco::quoted(name) + " is not a product name; use letters, digits, '-', '_' and '.'");
}

void check_picture_name(const std::string& name) {
  try {
    parse_json(write_json(name), "name");
  } catch (const Failure&) {
    fail(ANOCO_INVALID_ARGUMENT, "the name " + anoco::quoted(name) + " of a picture is not UTF-8",
         "give names in UTF-8");
  }
}

// Refuses what only the Python package can do.
void refuse_unsupported(const Product& product) {
  const char* why = nullptr;
  if (product.tta != Tta::none || product.flips)
    why = "has views of its references (rotations, flips, test-time augmentation)";
  if (product.thinned) why = "has a bank that was thinned (--max-patches)";
  if (product.calibrated || product.baseline) why = "is calibrated (its pictures are scored again)";
  if (product.calibration_lost) why = "has lost its calibration";
  if (!product.bank && !product.references.empty()) why = "has references without a bank";
  if (why != nullptr)
    fail(ANOCO_UNSUPPORTED, "product " + anoco::quoted(product.name) + " " + why +
                                ", so only Python can teach it; run: anoco-edge enroll");
}

void check_shapes(const Product& product, const std::vector<NamedPicture>& pictures,
                  const std::optional<Mask>& ignore) {
  if (product.any_size) return;
  int64_t width = pictures[0].image.width, height = pictures[0].image.height;
  if (!product.references.empty()) {
    width = product.references[0].width;
    height = product.references[0].height;
  }
  const auto size = [](int64_t w, int64_t h) {
    return std::to_string(w) + "x" + std::to_string(h);
  };
  const auto check = [&](const std::string& name, int64_t w, int64_t h) {
    if (!same_shape(w, h, width, height))
      fail(ANOCO_BAD_PICTURE, name + " is " + size(w, h) + ", the references are " +
                                  size(width, height) +
                                  "; give pictures of the same shape, or allow all with: "
                                  "anoco-edge product set --any-size");
  };
  if (ignore) check("the mask", ignore->width, ignore->height);
  for (const NamedPicture& picture : pictures)
    check(picture.name, picture.image.width, picture.image.height);
}

BankBuilder read_bank_builder(const Bundle& bundle, const Product& product) {
  if (product.bank) return BankBuilder(bundle.bank(product));
  return BankBuilder(bundle.manifest().input.dim, product.bank_half);
}

}  // namespace

Teacher::Teacher(std::shared_ptr<const Bundle> bundle, std::shared_ptr<const Engine> engine)
    : bundle_(std::move(bundle)), engine_(std::move(engine)) {}

EnrollmentSummary Teacher::enroll(const std::vector<NamedPicture>& pictures,
                                  const std::optional<std::string>& product) const {
  if (pictures.empty())
    fail(ANOCO_INVALID_ARGUMENT, "there are no reference pictures; give pictures of good parts");
  int64_t width = 0, height = 0;
  for (const NamedPicture& picture : pictures) {
    check_picture_name(picture.name);
    width = std::max(width, picture.image.width);
    height = std::max(height, picture.image.height);
  }
  const std::string name = choose_product(product);
  const ProductPlace place{bundle_->path(), name};
  const ProductLock lock(place, kWait);
  bundle_->check_not_replaced();

  StoredProduct known = read_stored_product(*bundle_, name);
  refuse_unsupported(known.product);
  const std::optional<Mask> ignore = bundle_->mask(known.product);
  check_shapes(known.product, pictures, ignore);

  FeatureExtractor extractor(bundle_->manifest().input, known.product, ignore, engine_, width,
                             height);
  BankBuilder patches = read_bank_builder(*bundle_, known.product);
  Enrollment enrollment(std::move(known.product), std::move(known.document), std::move(patches),
                        extractor);
  for (const NamedPicture& picture : pictures) enrollment.add(picture);
  const Generation generation = enrollment.finish(next_generation(place));
  // A document that could not be read again must not be written.
  read_product(generation.document, (place.folder() / kProductFile).string());
  commit(place, generation);
  bundle_->check_not_replaced();
  return enrollment.summary();
}

std::string Teacher::choose_product(const std::optional<std::string>& asked) const {
  const std::vector<std::string> names = bundle_->products();
  if (!asked && names.size() > 1) {
    std::string known = names[0];
    for (size_t k = 1; k < names.size(); ++k) known += ", " + names[k];
    fail(ANOCO_INVALID_ARGUMENT,
         bundle_->path().string() + " has several products: " + known + "; say which");
  }
  const std::string name = asked ? *asked : names.empty() ? kDefaultProduct : names[0];
  // Check the name before the lock is taken, because that creates the folder.
  if (std::find(names.begin(), names.end(), name) == names.end()) check_new_name(name);
  return name;
}

}  // namespace anoco
