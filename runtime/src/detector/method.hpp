// What a product sets of the method: the part of a scorer's settings that does not depend on where
// it runs.
#pragma once

#include "bundle/schema.hpp"
#include "scorer/bank.hpp"
#include "scorer/layout.hpp"

namespace anoco {

// Returns settings with the product's metric, floor and lambda. A relative lambda is multiplied by
// the median norm of the product's bank.
Settings method_settings(const Product& product, const Bank& bank);

}  // namespace anoco
