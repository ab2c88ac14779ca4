// The precision in which a processor computes the backbone, chosen as
// anoco_edge/engines/cpu_precision.py does.
#pragma once

#include <string>

#include "bundle/bundle.hpp"
#include "engine/engine.hpp"

namespace anoco {

struct PrecisionChoice {
  std::string name;  // "fp32", "bf16" or "int8"; "": the engine does not compute on the processor
  std::string reason;
};

// Chooses the precision before the self-test has a say. `asked` is empty for "auto". `product` is
// the one that will be inspected, which "auto" follows; nullptr where a new one is taught. What is
// asked for by its name and is not there is a Failure.
PrecisionChoice plan_precision(const std::string& asked, const EngineChoice& engine,
                               const Bundle& bundle, const Product* product);

// Says that a product is judged in another precision than it was taught in; "" if it is not.
std::string mismatch(const Product& product, const PrecisionChoice& runs);

}  // namespace anoco
