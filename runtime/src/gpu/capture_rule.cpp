#include "gpu/capture_rule.hpp"

#include <condition_variable>
#include <mutex>

namespace anoco::gpu {
namespace {

struct Rule {
  std::mutex mutex;
  std::condition_variable turn;
  int changes = 0;  // threads that change a device
  int waiting = 0;  // captures that wait for them
  bool capturing = false;
};

// Never destroyed, because programs free memory of the device while they exit.
Rule& rule() {
  static Rule* const only = new Rule;
  return *only;
}

// Of this thread: the scopes that it is in.
thread_local int own_changes = 0, own_captures = 0;

}  // namespace

void begin_change() {
  if (own_changes++ > 0 || own_captures > 0) return;
  Rule& all = rule();
  std::unique_lock<std::mutex> lock(all.mutex);
  // A capture that waits goes first, or changes that overlap would keep it waiting.
  all.turn.wait(lock, [&] { return !all.capturing && all.waiting == 0; });
  ++all.changes;
}

void end_change() {
  if (--own_changes > 0 || own_captures > 0) return;
  Rule& all = rule();
  const std::lock_guard<std::mutex> lock(all.mutex);
  --all.changes;
  all.turn.notify_all();
}

bool begin_capture(std::chrono::milliseconds patience) {
  if (own_changes > 0 || own_captures > 0) return false;
  Rule& all = rule();
  std::unique_lock<std::mutex> lock(all.mutex);
  const auto is_free = [&] { return !all.capturing && all.changes == 0; };
  ++all.waiting;
  bool held = true;
  if (patience.count() == 0)
    all.turn.wait(lock, is_free);
  else
    held = all.turn.wait_for(lock, patience, is_free);
  --all.waiting;
  all.capturing = all.capturing || held;
  if (held) own_captures = 1;
  if (!held) all.turn.notify_all();  // changes that waited for this capture
  return held;
}

void end_capture() {
  Rule& all = rule();
  const std::lock_guard<std::mutex> lock(all.mutex);
  own_captures = 0;
  all.capturing = false;
  all.turn.notify_all();
}

DeviceChange::DeviceChange() { begin_change(); }

DeviceChange::~DeviceChange() { end_change(); }

CaptureScope::CaptureScope(std::chrono::milliseconds patience) : held_(begin_capture(patience)) {}

CaptureScope::~CaptureScope() {
  if (held_) end_capture();
}

}  // namespace anoco::gpu
