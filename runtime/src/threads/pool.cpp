#include "threads/pool.hpp"

#include <sched.h>

#include <system_error>

#include "failure.hpp"

namespace anoco {
namespace {

// If the system does not say, one processor is assumed.
std::vector<int> processors() {
  std::vector<int> found;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &set)) found.push_back(cpu);
  if (found.empty()) found.push_back(0);
  return found;
}

void stay_on(std::thread& thread, int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  // A container may forbid this; then the thread is not pinned, which only costs time.
  pthread_setaffinity_np(thread.native_handle(), sizeof set, &set);
}

}  // namespace

int available_processors() { return static_cast<int>(processors().size()); }

Pool::Pool(int threads, bool pin) {
  const std::vector<int> cpus = processors();
  workers_.reserve(static_cast<size_t>(threads - 1));
  try {
    for (int k = 1; k < threads; ++k) {
      workers_.emplace_back([this, k] { serve(k); });
      if (pin) stay_on(workers_.back(), cpus[static_cast<size_t>(k) % cpus.size()]);
    }
  } catch (const std::system_error&) {
    stop();
    fail(ANOCO_NO_THREADS, "the system refuses to start " + std::to_string(threads) + " threads",
         "use fewer, or raise the limit of processes (ulimit -u)");
  }
}

Pool::~Pool() { stop(); }

void Pool::stop() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  start_.notify_all();
  for (std::thread& worker : workers_) worker.join();
  workers_.clear();
}

void Pool::run_all(int64_t items) {
  items_ = items;
  next_.store(0, std::memory_order_relaxed);
  if (items < 2 || workers_.empty()) return take_items(0);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++job_;
    open_ = true;
  }
  start_.notify_all();
  take_items(0);
  std::unique_lock<std::mutex> lock(mutex_);
  // A worker that the system has not woken by now is not waited for: on a busy machine that takes
  // longer than most jobs.
  open_ = false;
  done_.wait(lock, [this] { return busy_ == 0; });
}

void Pool::take_items(int thread) {
  for (int64_t item; (item = next_.fetch_add(1, std::memory_order_relaxed)) < items_;)
    call_(work_, item, thread);
}

void Pool::serve(int thread) {
  uint64_t seen = 0;
  for (;;) {
    {
      std::unique_lock<std::mutex> lock(mutex_);
      start_.wait(lock, [&] { return stop_ || (open_ && job_ != seen); });
      if (stop_) return;
      seen = job_;
      ++busy_;
    }
    take_items(thread);
    const std::lock_guard<std::mutex> lock(mutex_);
    if (--busy_ == 0) done_.notify_one();
  }
}

}  // namespace anoco
