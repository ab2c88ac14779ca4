// Reads and checks the options of banks and scorers, the same for the CPU and for devices.
#pragma once

#include "scorer/layout.hpp"

namespace anoco {

anoco_bank_options read_bank(const anoco_bank_options* given);

// `memory` is the number of bytes to use where the caller does not give one.
Settings read_settings(const anoco_scorer_options* given, int64_t memory);

}  // namespace anoco
