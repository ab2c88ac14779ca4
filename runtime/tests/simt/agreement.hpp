// Compares what kernels found with the method in float64.
#pragma once

#include "reference.hpp"
#include "scoring_kernels.hpp"

namespace reference {

// Every row whose decisions have a margin must agree, and no more than a share of rows may have
// none.
void compare(const char* name, const Problem& p, const simt::Result& got, double most_undecided);

}  // namespace reference
