// The struct behind an anoco_bundle of the C interface.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "anoco_edge.h"
#include "bundle/bundle.hpp"

struct anoco_bundle {
  std::shared_ptr<const anoco::Bundle> bundle;  // detectors keep it
  std::vector<std::string> products;            // when it was opened
};
