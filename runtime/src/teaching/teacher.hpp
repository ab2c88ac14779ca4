// Enrolls without Python: pictures of good parts become references of a product, as in
// anoco_edge/teaching/teacher.py.
//
// One enrollment is one generation: features, bank and threshold are computed first and committed
// together, under the product's lock. If anything fails before the commit, nothing changes.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "anoco_edge.h"
#include "bundle/bundle.hpp"
#include "engine/engine.hpp"

namespace anoco {

struct NamedPicture {
  std::string name;
  anoco_image image;  // checked
};

struct EnrollmentSummary {
  int64_t added = 0, duplicates = 0;  // pictures
  int64_t references = 0, patches = 0, generation = 0;
  double threshold = 0;  // 0 if there is none
};

class Teacher {
 public:
  Teacher(std::shared_ptr<const Bundle> bundle, std::shared_ptr<const Engine> engine);

  // Adds references to a product, which is created if needed. Without a name it is the only
  // product.
  EnrollmentSummary enroll(const std::vector<NamedPicture>& pictures,
                           const std::optional<std::string>& product) const;

 private:
  std::string choose_product(const std::optional<std::string>& asked) const;

  std::shared_ptr<const Bundle> bundle_;
  std::shared_ptr<const Engine> engine_;
};

}  // namespace anoco
