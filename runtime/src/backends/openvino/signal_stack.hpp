// Looking for devices, OpenVINO gives the calling thread a stack for signals which is gone together
// with the plug-in that it belongs to: the next signal would then end in a crash. So the thread
// gets its own back.
#pragma once

#include <signal.h>

namespace anoco {

class SignalStackKept {
 public:
  SignalStackKept() { sigaltstack(nullptr, &before_); }
  ~SignalStackKept() { sigaltstack(&before_, nullptr); }
  SignalStackKept(const SignalStackKept&) = delete;
  SignalStackKept& operator=(const SignalStackKept&) = delete;

 private:
  stack_t before_{};
};

}  // namespace anoco
