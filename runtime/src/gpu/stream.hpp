// Streams, events and captured graphs of a device.
#pragma once

#include <utility>

#include "gpu/device.hpp"

namespace anoco::gpu {

// Declare it after the memory that its work uses: its destructor waits for that work.
class Stream {
 public:
  explicit Stream(SharedDevice device);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  CUstream get() const { return stream_; }
  const Device& device() const { return *device_; }
  void wait() const;
  CUresult wait_unchecked() const noexcept;

 private:
  SharedDevice device_;
  CUstream stream_ = nullptr;
};

// Waits for the stream if an exception leaves the scope, so that nothing is running at the next
// call.
class StreamGuard {
 public:
  explicit StreamGuard(const Stream& stream) : stream_(stream) {}
  ~StreamGuard() {
    if (!dismissed_) stream_.wait_unchecked();
  }
  void dismiss() { dismissed_ = true; }

 private:
  const Stream& stream_;
  bool dismissed_ = false;
};

class Event {
 public:
  Event(SharedDevice device, unsigned flags);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(CUstream stream) const { driver().cuEventRecord(event_, stream); }
  CUevent get() const { return event_; }
  // Returns the milliseconds since an earlier event; both must have passed.
  double since(const Event& earlier) const;

 private:
  SharedDevice device_;
  CUevent event_ = nullptr;
};

class Graph {
 public:
  Graph() = default;
  Graph(Graph&& other) noexcept
      : device_(std::move(other.device_)), exec_(std::exchange(other.exec_, nullptr)) {}
  Graph& operator=(Graph&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(exec_, other.exec_);
    return *this;
  }
  ~Graph();

  explicit operator bool() const { return exec_ != nullptr; }
  void launch(CUstream stream) const { driver().cuGraphLaunch(exec_, stream); }

  // Records what `work` enqueues on the stream without running it. If `work` or the recording
  // fails, the stream is as before. The device must be current, and the thread in a CaptureScope;
  // GraphMaker sees to that.
  template <class Work>
  static Graph capture(SharedDevice device, CUstream stream, Work&& work) {
    Capture capture(stream);
    work();
    return Graph(std::move(device), capture.end());
  }

 private:
  // Ends the recording in any case.
  class Capture {
   public:
    explicit Capture(CUstream stream);
    ~Capture();
    CUgraphExec end();

   private:
    CUstream stream_;
    bool open_ = true;
  };
  Graph(SharedDevice device, CUgraphExec exec) : device_(std::move(device)), exec_(exec) {}

  SharedDevice device_;
  CUgraphExec exec_ = nullptr;
};

}  // namespace anoco::gpu
