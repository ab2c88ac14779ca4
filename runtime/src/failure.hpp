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

// A file of a bundle that is not what was written. Python gives the same advice (BundleError).
[[noreturn]] inline void fail_damaged(const std::string& what) {
  fail(ANOCO_BAD_BUNDLE, what, "the bundle is damaged or was edited: copy or make it again");
}

}  // namespace anoco
