// TensorRT's library, found and loaded at run time.
#pragma once

#include <NvInferRuntime.h>

#include <mutex>
#include <string>

namespace anoco {

// Keeps the first error: what follows is mostly its consequence. Prints nothing.
class TensorRtLog : public nvinfer1::ILogger {
 public:
  void log(Severity severity, const char* message) noexcept override;
  // The first error since the last call, or "it gave no reason".
  std::string take();

 private:
  std::mutex mutex_;
  char first_[300] = "";  // of a fixed size: logging must not throw
};

// It stays loaded until the program ends: threads of its own may still run in it.
struct TensorRt {
  // `where` is a file or a folder; NULL: it is searched for. Not found, or of another major
  // version than the headers: ANOCO_NO_BACKEND.
  explicit TensorRt(const char* where);

  // NULL where the library refuses; the log says why.
  nvinfer1::IRuntime* create_runtime(TensorRtLog& log) const;

  std::string version, full_version;  // "10.3.0", "10.3.0.30"

 private:
  void* (*create_)(void*, int32_t) = nullptr;
};

}  // namespace anoco
