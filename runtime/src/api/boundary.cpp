#include "api/boundary.hpp"

namespace {

// Room of its own for each thread, so that an error never needs memory.
thread_local char last_error[512] = "";

}  // namespace

anoco_status anoco::remember(anoco_status status, const char* text) noexcept {
  std::strncpy(last_error, text, sizeof last_error - 1);
  return status;
}

extern "C" const char* anoco_last_error(void) { return last_error; }
