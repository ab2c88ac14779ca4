// What a caller's anoco_detector is.
#pragma once

#include <memory>

#include "detector/detector.hpp"

struct anoco_detector {
  std::shared_ptr<anoco::Detector> detector;
};
