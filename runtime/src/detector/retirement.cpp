#include "detector/retirement.hpp"

#include <system_error>

#include "failure.hpp"

namespace anoco {

Retirement::~Retirement() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ending_ = true;
  }
  taken_.notify_one();
  thread_.join();
}

void Retirement::expect_one() {
  const std::lock_guard<std::mutex> lock(mutex_);
  waiting_.reserve(waiting_.size() + 2);  // one may still be expected
  if (thread_.joinable()) return;
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    fail(ANOCO_NO_THREADS,
         std::string("the thread that frees old products does not start: ") + error.what());
  }
}

void Retirement::take(std::unique_ptr<Workspace> workspace) noexcept {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    waiting_.push_back(std::move(workspace));
  }
  taken_.notify_one();
}

void Retirement::run() noexcept {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!ending_ || !waiting_.empty()) {
    taken_.wait(lock, [this] { return ending_ || !waiting_.empty(); });
    if (waiting_.empty()) continue;
    std::unique_ptr<Workspace> next = std::move(waiting_.back());
    waiting_.pop_back();
    lock.unlock();
    next.reset();
    lock.lock();
  }
}

}  // namespace anoco
