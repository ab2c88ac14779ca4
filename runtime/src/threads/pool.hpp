// A pool with a fixed number of threads, which are started once and sleep between jobs.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace anoco {

// Returns the number of processors that this process may use.
int available_processors();

class Pool {
 public:
  // The caller of `run` is one of the threads.
  Pool(int threads, bool pin);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  int threads() const { return 1 + static_cast<int>(workers_.size()); }

  // Calls work(item, thread) for every item below `items`, in no particular order, and returns when
  // all are done. `work` must not throw. What an item computes must not depend on its thread.
  template <class Work>
  void run(int64_t items, Work&& work) {
    call_ = [](void* self, int64_t item, int thread) {
      (*static_cast<std::remove_reference_t<Work>*>(self))(item, thread);
    };
    work_ = &work;
    run_all(items);
  }

 private:
  void stop();
  void run_all(int64_t items);
  void take_items(int thread);
  void serve(int thread);

  void (*call_)(void*, int64_t, int) = nullptr;
  void* work_ = nullptr;
  int64_t items_ = 0;
  std::atomic<int64_t> next_{0};

  std::mutex mutex_;
  std::condition_variable start_, done_;
  // Guarded by mutex_:
  uint64_t job_ = 0;
  bool open_ = false;  // the job may have items left
  int busy_ = 0;       // workers that took part in it and are not done
  bool stop_ = false;
  std::vector<std::thread> workers_;
};

}  // namespace anoco
