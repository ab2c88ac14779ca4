#include "gpu/stream.hpp"

namespace anoco::gpu {

Stream::Stream(SharedDevice device) : device_(std::move(device)) {
  const CurrentDevice current(*device_);
  driver().cuStreamCreate(&stream_, kStreamNonBlocking);
}

Stream::~Stream() {
  run_on_device(*device_, [&] { wait_unchecked(); });  // it may take long, so it is no change
  release_on_device(*device_, [&] { driver().cuStreamDestroy_v2.unchecked(stream_); });
}

// An error of a kernel shows here, whoever launched it.
CUresult Stream::wait_unchecked() const noexcept {
  const CUresult code = driver().cuStreamSynchronize.unchecked(stream_);
  if (is_sticky(code)) device_->lose(code);
  return code;
}

void Stream::wait() const {
  if (const CUresult code = wait_unchecked())
    fail_driver_call(driver().cuStreamSynchronize.name(), code);
}

Event::Event(SharedDevice device, unsigned flags) : device_(std::move(device)) {
  const CurrentDevice current(*device_);
  driver().cuEventCreate(&event_, flags);
}

Event::~Event() {
  run_on_device(*device_, [&] { driver().cuEventDestroy_v2.unchecked(event_); });
}

double Event::since(const Event& earlier) const {
  float milliseconds = 0;
  driver().cuEventElapsedTime(&milliseconds, earlier.event_, event_);
  return milliseconds;
}

Graph::~Graph() {
  if (exec_ != nullptr)
    release_on_device(*device_, [&] { driver().cuGraphExecDestroy.unchecked(exec_); });
}

// Other threads may use the device meanwhile, within the rule of capture_rule.hpp.
Graph::Capture::Capture(CUstream stream) : stream_(stream) {
  driver().cuStreamBeginCapture_v2(stream, kCaptureThreadLocal);
}

Graph::Capture::~Capture() {
  if (!open_) return;
  CUgraph graph = nullptr;
  driver().cuStreamEndCapture.unchecked(stream_, &graph);
  if (graph != nullptr) driver().cuGraphDestroy.unchecked(graph);
}

CUgraphExec Graph::Capture::end() {
  CUgraph graph = nullptr;
  open_ = false;
  const int ended = driver().cuStreamEndCapture.unchecked(stream_, &graph);
  if (ended != kSuccess) {
    if (graph != nullptr) driver().cuGraphDestroy.unchecked(graph);
    fail_driver_call("cuStreamEndCapture", ended);
  }
  CUgraphExec exec = nullptr;
  const int made = driver().cuGraphInstantiateWithFlags.unchecked(&exec, graph, 0);
  driver().cuGraphDestroy.unchecked(graph);
  if (made != kSuccess) fail_driver_call("cuGraphInstantiateWithFlags", made);
  return exec;
}

}  // namespace anoco::gpu
