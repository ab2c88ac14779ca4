// The self-test of a bundle checks that this engine on this machine computes what torch computed.
#pragma once

#include <string>

#include "bundle/bundle.hpp"
#include "engine/engine.hpp"

namespace anoco {

struct SelfTestResult {
  double min_cosine, norm_error, energy_error;
};

// Fails with ANOCO_PARITY and the measured differences. An engine that computes in BF16 has limits
// of its own.
SelfTestResult run_selftest(const Bundle& bundle, Request& request);

}  // namespace anoco
