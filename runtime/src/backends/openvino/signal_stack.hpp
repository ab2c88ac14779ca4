// While OpenVINO looks for devices it gives the calling thread an alternate signal stack. That
// stack is freed together with the plug-in that owns it, and the next signal would then crash the
// program. The guard gives the thread its own stack back.
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
