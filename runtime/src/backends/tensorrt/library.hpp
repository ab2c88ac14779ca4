// TensorRT's library, found and loaded at run time.
#pragma once

#include <NvInferRuntime.h>

#include <mutex>
#include <string>

namespace anoco {

// Keeps the first error, because the errors after it are mostly its consequences. It prints
// nothing.
class TensorRtLog : public nvinfer1::ILogger {
 public:
  void log(Severity severity, const char* message) noexcept override;
  // Returns and clears the first error since the last call, or "it gave no reason".
  std::string take();

 private:
  std::mutex mutex_;
  char first_[300] = "";  // of a fixed size: logging must not throw
};

// The library stays loaded until the program ends, because threads of its own may still run in it.
struct TensorRt {
  // `where` is a file or a folder; with NULL the library is searched for. A library that is
  // missing, or of another major version than the headers, is a Failure (ANOCO_NO_BACKEND).
  explicit TensorRt(const char* where);

  // Returns NULL where the library refuses; the log then has the reason.
  nvinfer1::IRuntime* create_runtime(TensorRtLog& log) const;

  std::string version, full_version;  // "10.3.0", "10.3.0.30"

 private:
  void* (*create_)(void*, int32_t) = nullptr;
};

}  // namespace anoco
