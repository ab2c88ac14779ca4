#include "teaching/enrollment.hpp"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "bundle/checksum.hpp"
#include "bundle/png_write.hpp"
#include "bundle/sha256.hpp"
#include "failure.hpp"
#include "teaching/document.hpp"
#include "teaching/provisional_threshold.hpp"

namespace anoco {

std::string unused_name(const std::string& name, const std::vector<Reference>& taken) {
  const auto is_taken = [&](const std::string& wanted) {
    return std::any_of(taken.begin(), taken.end(),
                       [&](const Reference& reference) { return reference.name == wanted; });
  };
  const std::filesystem::path path(name);
  std::string free = name;
  for (int number = 2; is_taken(free); ++number)
    free = path.stem().string() + "-" + std::to_string(number) + path.extension().string();
  return free;
}

Enrollment::Enrollment(Product product, Json document, BankBuilder patches,
                       FeatureExtractor& extractor)
    : product_(std::move(product)),
      document_(std::move(document)),
      patches_(std::move(patches)),
      extractor_(extractor) {}

void Enrollment::add(const NamedPicture& picture) {
  const int64_t width = picture.image.width, height = picture.image.height;
  rgb_.resize(size_t(width * height * 3));
  to_rgb(picture.image, rgb_.data());
  const std::string pixels = sha256_hex(view(rgb_));
  if (const Reference* same = known(pixels)) {
    duplicates_.push_back(picture.name + " (same as " + same->name + ")");
    return;
  }
  Reference reference;
  reference.name = unused_name(picture.name, product_.references);
  reference.pixels = pixels;
  reference.width = width;
  reference.height = height;

  const auto grid = extractor_.extract({width, height, rgb_.data()});
  const auto number = static_cast<int32_t>(product_.references.size());
  product_.dropped_patches +=
      patches_.add(number, grid.features, grid.scored, extractor_.input(), reference.name);

  Bytes png = write_png(rgb_.data(), width, height);
  const std::string path = "references/" + sha256_hex(view(png)).substr(0, 16) + ".png";
  reference.file = keep(path, std::move(png));
  product_.references.push_back(std::move(reference));
  ++summary_.added;
}

Generation Enrollment::finish(int64_t number) {
  if (summary_.added == 0) {
    std::string words = "nothing new: ";
    for (const std::string& word : duplicates_)
      words += (&word == &duplicates_[0] ? "" : ", ") + word;
    fail(ANOCO_BAD_PICTURE, words + "; every picture is known already: give others");
  }
  Generation generation;
  generation.number = number;
  if (product_.generation > 0) generation.parent = product_.generation;

  document_.set("generation", number);
  document_.set("parent", generation.parent ? Json(*generation.parent) : Json());
  document_.set("changed", now());
  document_.set("change", "enroll " + std::to_string(summary_.added));
  if (document_.find("references") == nullptr) document_.set("references", Json::Array{});
  auto& references = *document_.find("references")->as<Json::Array>();
  for (size_t k = references.size(); k < product_.references.size(); ++k)
    references.push_back(as_json(product_.references[k]));
  const std::string bank = "bank-" + std::to_string(number) + ".safetensors";
  document_.set("bank", as_json(keep(bank, patches_.file())));
  document_.set("dropped_patches", product_.dropped_patches);
  set_threshold();
  set_precision();

  generation.document = write_with_checksum(std::move(document_));
  generation.files = std::move(files_);
  summary_.duplicates = int64_t(duplicates_.size());
  summary_.references = int64_t(product_.references.size());
  summary_.patches = patches_.rows();
  summary_.generation = number;
  return generation;
}

const Reference* Enrollment::known(const std::string& pixels) const {
  for (const Reference& reference : product_.references)
    if (reference.pixels == pixels) return &reference;
  return nullptr;
}

FileRecord Enrollment::keep(std::string path, Bytes content) {
  const FileRecord record{path, sha256_hex(view(content)), int64_t(content.size())};
  files_.push_back({std::move(path), std::move(content)});
  return record;
}

// Records the precision that the threshold's scores were computed in. The member is left out where
// that is the graph's own, so that older versions read the product.
void Enrollment::set_precision() {
  if (extractor_.engine().bf16()) {
    document_.set("cpu_precision", "bf16");
    return;
  }
  auto& members = *document_.as<Json::Object>();
  members.erase(std::remove_if(members.begin(), members.end(),
                               [](const auto& member) { return member.first == "cpu_precision"; }),
                members.end());
}

void Enrollment::set_threshold() {
  summary_.threshold = product_.threshold;
  if (product_.threshold_kind == ThresholdKind::manual) return;  // a person has set it, so it stays
  // If there is only one reference, all pictures were alike, so the last is as good as the first.
  const Reference& first = product_.references.front();
  const auto references = int64_t(product_.references.size());
  ProvisionalThreshold found =
      references > 1 ? threshold_from_references(product_, patches_, extractor_.input(), references)
                     : threshold_from_views(product_, patches_, extractor_,
                                            {first.width, first.height, rgb_.data()});
  summary_.threshold = found.value;
  document_.set("threshold", std::move(found.document));
}

}  // namespace anoco
