// The struct behind an anoco_detector of the C interface.
#pragma once

#include <memory>

#include "detector/detector.hpp"

struct anoco_detector {
  std::shared_ptr<anoco::Detector> detector;
};

struct anoco_context {
  anoco::Context context;
};
