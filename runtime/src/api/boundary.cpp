#include "api/boundary.hpp"

#include "threads/pool.hpp"

namespace {

// Each thread has a buffer of its own, so that reporting an error never allocates.
thread_local char last_error[1024] = "";

}  // namespace

void anoco::remember(const char* text) noexcept {
  std::strncpy(last_error, text, sizeof last_error - 1);
}

int anoco::scoring_threads(uint32_t threads) {
  constexpr uint32_t kMost = 1024;
  if (threads > kMost)
    fail(ANOCO_INVALID_ARGUMENT, "threads is " + std::to_string(threads),
         "use at most " + std::to_string(kMost) + ", or 0 for all processors");
  return threads != 0 ? int(threads) : available_processors();
}

extern "C" const char* anoco_last_error(void) { return last_error; }
