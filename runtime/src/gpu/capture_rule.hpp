// The one rule of this process between captures of CUDA graphs and calls that synchronize a device.
//
// While a stream is captured, CUDA invalidates the capture (error 901 at its end) if any thread
// synchronizes the device as a whole, and refuses such calls of the capturing thread (900). Many
// calls do that without saying so: cublasCreate and cublasDestroy, taking and freeing memory of the
// device or page-locked memory, loading a module, which the first launch of a kernel of cuBLAS or
// of TensorRT does as well, making and destroying a TensorRT context or an executable graph. A
// change of the product does most of them, while the contexts of other cameras capture. Therefore:
//
//   DeviceChange  is held around every such call. Any number of threads may hold one.
//   CaptureScope  is held from the begin of a capture until its graph is instantiated. It excludes
//                 all changes, and other captures, whose instantiation takes memory too.
//
// Who holds them: Device, DeviceBuffer, PinnedBuffer, Multiplier (cuBLAS) and release_on_device for
// what is made and freed; Engine and Request (engine/engine.cpp) around the calls of backends on a
// CUDA device, and around their first run; the first enqueueing of work that is captured later
// (RepeatedWork in graph_maker.hpp); GraphMaker for captures. anoco_cuda_lock offers both to
// programs that use CUDA beside this library.
//
// The rule is for all devices together: the libraries that we call do not say what they touch. A
// graph saves time and nothing else, so a capture does not hold up a picture: if changes go on for
// longer than kPatience it takes place with a later picture. Code that does not know the rule can
// still invalidate a capture; GraphMaker says what happens then.
#pragma once

#include <chrono>

namespace anoco::gpu {

// The longest time that a capture waits for changes that are under way.
constexpr std::chrono::milliseconds kPatience{20};

// Waits until no thread captures. Scopes may be nested. In a thread that captures itself it does
// not wait: CUDA then refuses the call, and the capture fails.
class DeviceChange {
 public:
  DeviceChange();
  ~DeviceChange();
  DeviceChange(const DeviceChange&) = delete;
  DeviceChange& operator=(const DeviceChange&) = delete;
};

class CaptureScope {
 public:
  // Waits for changes and captures of other threads, if `patience` is not zero at most so long. It
  // is false if they have not ended by then, and in a thread that is changing the device itself.
  explicit CaptureScope(std::chrono::milliseconds patience = kPatience);
  ~CaptureScope();
  CaptureScope(const CaptureScope&) = delete;
  CaptureScope& operator=(const CaptureScope&) = delete;
  explicit operator bool() const { return held_; }

 private:
  bool held_;
};

// The same without scopes, for the C interface: a lock must be given back by the same thread.
void begin_change();
void end_change();
bool begin_capture(std::chrono::milliseconds patience);  // zero: without limit
void end_capture();

}  // namespace anoco::gpu
