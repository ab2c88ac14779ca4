// What callers say of banks and scorers, checked: the same for the CPU and for devices.
#pragma once

#include "scorer/layout.hpp"

namespace anoco {

anoco_bank_options read_bank(const anoco_bank_options* given);

// `memory` is used where the caller leaves it open, in bytes.
Settings read_settings(const anoco_scorer_options* given, int64_t memory);

}  // namespace anoco
