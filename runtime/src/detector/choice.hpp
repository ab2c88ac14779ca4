// What was chosen, and why, in a few words for the user.
#pragma once

#include <string>

namespace anoco {

struct Choice {
  std::string name, reason;
};

}  // namespace anoco
