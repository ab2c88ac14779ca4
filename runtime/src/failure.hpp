// The exception that the library throws inside; the C boundary turns it into a status.
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

// The same with what to do about it: "what is wrong; what to do".
[[noreturn]] inline void fail(anoco_status status, const std::string& what,
                              const std::string& hint) {
  fail(status, what + "; " + hint);
}

}  // namespace anoco
