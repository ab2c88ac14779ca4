// Tells which characters are letters or digits in any alphabet.
#pragma once

#include <cstdint>

namespace anoco {

bool is_alphanumeric(uint32_t point);

}  // namespace anoco
