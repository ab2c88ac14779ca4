// What goes wrong inside the library, until the C boundary turns it into a status.
#pragma once

#include <string>
#include <utility>

#include "anoco_edge.h"

namespace anoco {

struct Failure {
  anoco_status status;
  std::string text;
};

[[noreturn]] inline void fail(anoco_status status, std::string text) {
  throw Failure{status, std::move(text)};
}

}  // namespace anoco
