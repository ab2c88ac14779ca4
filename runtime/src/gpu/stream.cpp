#include "gpu/stream.hpp"

namespace anoco::gpu {

Stream::Stream(SharedDevice device) : device_(std::move(device)) {
  const Current current(*device_);
  driver().cuStreamCreate(&stream_, kStreamNonBlocking);
}

Stream::~Stream() {
  freeing(*device_, [&] {
    wait_quietly();
    driver().cuStreamDestroy_v2.quietly(stream_);
  });
}

// Here it comes out that a kernel went astray, whoever launched it.
CUresult Stream::wait_quietly() const noexcept {
  const CUresult code = driver().cuStreamSynchronize.quietly(stream_);
  if (is_sticky(code)) device_->lose(code);
  return code;
}

void Stream::wait() const {
  if (const CUresult code = wait_quietly())
    fail_driver_call(driver().cuStreamSynchronize.name(), code);
}

Event::Event(SharedDevice device, unsigned flags) : device_(std::move(device)) {
  const Current current(*device_);
  driver().cuEventCreate(&event_, flags);
}

Event::~Event() {
  freeing(*device_, [&] { driver().cuEventDestroy_v2.quietly(event_); });
}

double Event::since(const Event& earlier) const {
  float milliseconds = 0;
  driver().cuEventElapsedTime(&milliseconds, earlier.event_, event_);
  return milliseconds;
}

Graph::~Graph() {
  if (exec_ != nullptr) freeing(*device_, [&] { driver().cuGraphExecDestroy.quietly(exec_); });
}

// Of this thread: what others do to the device meanwhile does not matter.
Graph::Capture::Capture(CUstream stream) : stream_(stream) {
  driver().cuStreamBeginCapture_v2(stream, kCaptureThreadLocal);
}

Graph::Capture::~Capture() {
  if (!open_) return;
  CUgraph graph = nullptr;
  driver().cuStreamEndCapture.quietly(stream_, &graph);
  if (graph != nullptr) driver().cuGraphDestroy.quietly(graph);
}

CUgraphExec Graph::Capture::end() {
  CUgraph graph = nullptr;
  open_ = false;
  const int ended = driver().cuStreamEndCapture.quietly(stream_, &graph);
  if (ended != kSuccess) {
    if (graph != nullptr) driver().cuGraphDestroy.quietly(graph);
    fail_driver_call("cuStreamEndCapture", ended);
  }
  CUgraphExec exec = nullptr;
  const int made = driver().cuGraphInstantiateWithFlags.quietly(&exec, graph, 0);
  driver().cuGraphDestroy.quietly(graph);
  if (made != kSuccess) fail_driver_call("cuGraphInstantiateWithFlags", made);
  return exec;
}

}  // namespace anoco::gpu
