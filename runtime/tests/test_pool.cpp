// Tests the thread pool: as many threads as requested take part, and pinned threads stay on their
// processor.
#include <sched.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tests/check.h"
#include "threads/pool.hpp"

namespace {

int allowed_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  CHECK(sched_getaffinity(0, sizeof set, &set) == 0);
  return CPU_COUNT(&set);
}

// Returns how many processors each thread may use. An item ends when every thread has one, so each
// thread gets one.
std::vector<int> seen_by(anoco::Pool& pool) {
  std::vector<int> processors(size_t(pool.threads()));
  std::atomic<int> arrived{0};
  pool.run(pool.threads(), [&](int64_t, int thread) {
    CHECK(processors[size_t(thread)] == 0);
    processors[size_t(thread)] = allowed_processors();
    ++arrived;
    while (arrived < pool.threads()) std::this_thread::yield();
  });
  return processors;
}

void every_item_is_done_once(anoco::Pool& pool) {
  for (const int64_t items : {0, 1, 2, 1000}) {
    std::vector<std::atomic<int>> done(static_cast<size_t>(items));
    pool.run(items, [&](int64_t item, int thread) {
      CHECK(thread >= 0 && thread < pool.threads());
      ++done[size_t(item)];
    });
    for (const std::atomic<int>& times : done) CHECK(times == 1);
  }
}

}  // namespace

int main() {
  const int all = allowed_processors();
  CHECK(anoco::available_processors() == all);
  for (const bool pin : {false, true})
    for (const int threads : {1, 2, 5}) {
      anoco::Pool pool(threads, pin);
      CHECK(pool.threads() == threads);
      every_item_is_done_once(pool);
      const std::vector<int> processors = seen_by(pool);
      CHECK(processors[0] == all);  // the caller's is left alone
      for (size_t k = 1; k < processors.size(); ++k) CHECK(processors[k] == (pin ? 1 : all));
    }
  return 0;
}
