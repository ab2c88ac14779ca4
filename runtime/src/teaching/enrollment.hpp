// One generation that is being made: the product as it was, and what new pictures add to it.
#pragma once

#include <string>
#include <vector>

#include "bundle/commit.hpp"
#include "bundle/json.hpp"
#include "teaching/bank_builder.hpp"
#include "teaching/feature_extractor.hpp"
#include "teaching/teacher.hpp"

namespace anoco {

class Enrollment {
 public:
  // `document` is product.json, `product` what it says, `patches` what its bank holds.
  Enrollment(Product product, Json document, BankBuilder patches, FeatureExtractor& extractor);

  // Reads a picture and keeps it, unless it is a reference already.
  void add(const NamedPicture& picture);

  // Everything that is to be written. Nothing new is a Failure (ANOCO_BAD_PICTURE).
  Generation finish(int64_t number);

  // What was done, once it is finished.
  const EnrollmentSummary& summary() const { return summary_; }

 private:
  const Reference* known(const std::string& pixels) const;
  FileRecord keep(std::string path, Bytes content);
  void set_threshold();

  Product product_;
  Json document_;
  BankBuilder patches_;
  FeatureExtractor& extractor_;
  std::vector<NewFile> files_;
  std::vector<std::string> duplicates_;  // a word on each
  std::vector<uint8_t> rgb_;             // of the last picture
  EnrollmentSummary summary_;
};

// A name that is not taken, as anoco_edge.teaching.unused_name finds it: part.png, part-2.png ...
std::string unused_name(const std::string& name, const std::vector<Reference>& taken);

}  // namespace anoco
