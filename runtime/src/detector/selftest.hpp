// The self-test of a bundle: does this engine on this machine compute what torch computed?
#pragma once

#include <string>

#include "bundle/bundle.hpp"
#include "engine/engine.hpp"

namespace anoco {

struct SelfTestResult {
  double min_cosine, norm_error, energy_error;
};

// Failure: ANOCO_PARITY, with the figures.
SelfTestResult run_selftest(const Bundle& bundle, Request& request);

}  // namespace anoco
