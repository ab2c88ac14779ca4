// Looking for devices, OpenVINO gives the calling thread a stack for signals which is gone together
// with the plug-in that it belongs to: the next signal would then end in a crash. So the thread
// gets its own back.
#pragma once

#include <signal.h>

namespace anoco {

class SignalStackGuard {
 public:
  SignalStackGuard() { sigaltstack(nullptr, &before_); }
  ~SignalStackGuard() { sigaltstack(&before_, nullptr); }
  SignalStackGuard(const SignalStackGuard&) = delete;
  SignalStackGuard& operator=(const SignalStackGuard&) = delete;

 private:
  stack_t before_{};
};

}  // namespace anoco
