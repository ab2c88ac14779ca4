// What a plan on this machine is bound to, as anoco_edge/plans/device.py has it.
#pragma once

#include <string>

#include "backends/tensorrt/plan_cache.hpp"

namespace anoco {

// Of the device of that number and a version of TensorRT. Without a device: ANOCO_NO_BACKEND.
PlanFingerprint fingerprint_of(int ordinal, const std::string& version);

}  // namespace anoco
