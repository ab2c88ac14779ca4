// Builds one new generation: the product as it was, and what new pictures add to it.
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
  // `document` is product.json, `product` its content, and `patches` holds the patches of its bank.
  Enrollment(Product product, Json document, BankBuilder patches, FeatureExtractor& extractor);

  // Adds a picture, unless it is a reference already.
  void add(const NamedPicture& picture);

  // Returns everything that has to be written. It is a Failure (ANOCO_BAD_PICTURE) if no picture is
  // new.
  Generation finish(int64_t number);

  // Returns what was done, once it is finished.
  const EnrollmentSummary& summary() const { return summary_; }

 private:
  const Reference* known(const std::string& pixels) const;
  FileRecord keep(std::string path, Bytes content);
  void set_threshold();
  void set_precision();

  Product product_;
  Json document_;
  BankBuilder patches_;
  FeatureExtractor& extractor_;
  std::vector<NewFile> files_;
  std::vector<std::string> duplicates_;  // one text for each
  std::vector<uint8_t> rgb_;             // of the last picture
  EnrollmentSummary summary_;
};

// Returns a name that is not taken, as the Python package does: part.png, part-2.png ...
std::string unused_name(const std::string& name, const std::vector<Reference>& taken);

}  // namespace anoco
