#include "backends/tensorrt/library.hpp"

#include <dlfcn.h>
#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "failure.hpp"

namespace anoco {
namespace {

std::string soname() { return "libnvinfer.so." + std::to_string(NV_TENSORRT_MAJOR); }

bool is_folder(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

// Returns the files to try, in order.
std::vector<std::string> candidates(const char* where) {
  if (where == nullptr) where = std::getenv("ANOCO_TENSORRT_LIBRARY");
  if (where == nullptr || where[0] == 0) return {soname()};
  const std::string named = where;
  if (!is_folder(named)) return {named};
  return {named + "/" + soname(), named + "/libnvinfer.so"};
}

void* load(const char* where) {
  std::string tried;
  for (const std::string& file : candidates(where)) {
    if (void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    tried += (tried.empty() ? "" : "; ") + std::string(dlerror());
  }
  fail(ANOCO_NO_BACKEND, "TensorRT cannot be loaded (" + tried +
                             "): on a Jetson install JetPack's, elsewhere pip install tensorrt, "
                             "then name the folder of " +
                             soname() + " in options.library or ANOCO_TENSORRT_LIBRARY");
}

template <class Function>
void resolve(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr)
    fail(ANOCO_NO_BACKEND, std::string("this version of TensorRT has no function ") + name,
         "install TensorRT " + std::to_string(NV_TENSORRT_MAJOR) + ".x");
}

}  // namespace

void TensorRtLog::log(Severity severity, const char* message) noexcept {
  if (severity != Severity::kERROR && severity != Severity::kINTERNAL_ERROR) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (first_[0] == 0) std::snprintf(first_, sizeof first_, "%s", message);
}

std::string TensorRtLog::take() {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::string text = first_[0] != 0 ? first_ : "it gave no reason";
  for (char& c : text)
    if (c == '\n' || c == '\r') c = ' ';
  first_[0] = 0;
  return text;
}

TensorRt::TensorRt(const char* where) {
  void* const library = load(where);
  int32_t (*part[4])() = {};
  resolve(library, "getInferLibMajorVersion", part[0]);
  resolve(library, "getInferLibMinorVersion", part[1]);
  resolve(library, "getInferLibPatchVersion", part[2]);
  resolve(library, "getInferLibBuildVersion", part[3]);
  resolve(library, "createInferRuntime_INTERNAL", create_);
  const int32_t major = part[0]();
  version =
      std::to_string(major) + "." + std::to_string(part[1]()) + "." + std::to_string(part[2]());
  full_version = version + "." + std::to_string(part[3]());
  // The classes are used through tables of virtual functions, whose order another major version may
  // change.
  if (major != NV_TENSORRT_MAJOR)
    fail(ANOCO_NO_BACKEND, "TensorRT " + version + " was found, and this library was built for " +
                               std::to_string(NV_TENSORRT_MAJOR) +
                               ".x: build it with the headers of your TensorRT");
}

nvinfer1::IRuntime* TensorRt::create_runtime(TensorRtLog& log) const {
  return static_cast<nvinfer1::IRuntime*>(create_(&log, NV_TENSORRT_VERSION));
}

}  // namespace anoco
