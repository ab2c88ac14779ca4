// Kernels by the interpreter of PTX (tests/ptx) instead of the emulation, if ANOCO_SIM is "ptx".
#pragma once

#include <string>
#include <vector>

#include "simt.hpp"

namespace simcuda {

// Runs a kernel as simt::launch does. ANOCO_PTX names the file that has it. The allocations that
// its arguments lead into are what it may touch; anything else that is wrong ends the program.
void launch(const simt::Kernel& kernel, simt::Size grid, simt::Size block, void* const* values);

}  // namespace simcuda
