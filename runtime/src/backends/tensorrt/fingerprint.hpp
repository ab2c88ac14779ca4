// Identifies the device and the software that a plan is built for, as anoco_edge/plans/device.py
// does.
#pragma once

#include <string>

#include "backends/tensorrt/plan_cache.hpp"

namespace anoco {

// Returns the fingerprint of the device with this number and of a version of TensorRT. A missing
// device is a Failure (ANOCO_NO_BACKEND).
PlanFingerprint fingerprint_of(int ordinal, const std::string& version);

}  // namespace anoco
