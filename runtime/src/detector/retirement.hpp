// Frees the workspaces of a context that a change of the product has replaced. Freeing takes time,
// and on a device waits for it, so neither the thread that inspects does it nor the next change.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "detector/workspace.hpp"

namespace anoco {

class Retirement {
 public:
  Retirement() = default;
  // Frees what is left, and ends the thread.
  ~Retirement();
  Retirement(const Retirement&) = delete;
  Retirement& operator=(const Retirement&) = delete;

  // Prepares for one workspace more, so that take() allocates nothing and cannot fail. The first
  // call starts the thread; a Failure (ANOCO_NO_THREADS) if that is not possible.
  void expect_one();
  void take(std::unique_ptr<Workspace> workspace) noexcept;

 private:
  void run() noexcept;

  std::mutex mutex_;
  std::condition_variable taken_;
  std::vector<std::unique_ptr<Workspace>> waiting_;  // guarded by mutex_, as ending_
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace anoco
