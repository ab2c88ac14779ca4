#include "gpu/cublas.hpp"

#include <dlfcn.h>
#include <glob.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>

namespace anoco::gpu {
namespace {

constexpr int kOldestMajor = 12;  // our device code is of CUDA 12 and newer
constexpr size_t kLongest = 240;  // of what was tried, so that messages keep their end

const char* status_name(int code) {
  switch (code) {
    case 1: return "CUBLAS_STATUS_NOT_INITIALIZED";
    case 3: return "CUBLAS_STATUS_ALLOC_FAILED";
    case 7: return "CUBLAS_STATUS_INVALID_VALUE";
    case 8: return "CUBLAS_STATUS_ARCH_MISMATCH";
    case 11: return "CUBLAS_STATUS_MAPPING_ERROR";
    case 13: return "CUBLAS_STATUS_EXECUTION_FAILED";
    case 14: return "CUBLAS_STATUS_INTERNAL_ERROR";
    case 15: return "CUBLAS_STATUS_NOT_SUPPORTED";
    default: return "an unknown status";
  }
}

std::string join(const std::vector<std::string>& words, const char* between) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

bool is_folder(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

bool is_file(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

std::vector<std::string> matches(const std::string& pattern) {
  glob_t found{};
  std::vector<std::string> paths;
  if (::glob(pattern.c_str(), 0, nullptr, &found) == 0)
    paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  return paths;
}

// Appends the folders of files that match, each once.
void add_folders_of(const std::string& pattern, std::vector<std::string>& folders) {
  for (const std::string& file : matches(pattern)) {
    const std::string folder = file.substr(0, file.find_last_of('/'));
    if (std::find(folders.begin(), folders.end(), folder) == folders.end())
      folders.push_back(folder);
  }
}

// Returns the folders of Python packages if this library lies in one of them.
std::vector<std::string> package_folders() {
  Dl_info self{};
  if (dladdr(reinterpret_cast<const void*>(&cublas_names), &self) == 0 || self.dli_fname == nullptr)
    return {};
  std::string place = self.dli_fname;  // .../site-packages/anoco_edge/_lib/libanoco_edge.so.1
  for (int up = 0; up < 3; ++up) place = place.substr(0, place.find_last_of('/'));
  std::vector<std::string> folders;
  add_folders_of(place + "/nvidia/*/lib/libcublas.so.*", folders);
  return folders;
}

std::vector<std::string> environment_folders() {
  std::vector<std::string> folders;
  for (const char* name : {"CUDA_HOME", "CUDA_PATH"})
    if (const char* root = std::getenv(name); root != nullptr && root[0] != 0)
      add_folders_of(std::string(root) + "/lib64/libcublas.so.*", folders);
  return folders;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t first = 0; first <= text.size();) {
    const size_t last = std::min(text.find(':', first), text.size());
    if (last > first) parts.push_back(text.substr(first, last - first));
    first = last + 1;
  }
  return parts;
}

// What is tried, in order, and the folders that were looked into.
struct Search {
  std::vector<std::string> files, folders;
};

Search named_by_user(const std::string& value, const std::vector<std::string>& names) {
  Search search;
  for (const std::string& place : split(value)) {
    if (!is_folder(place)) {
      search.files.push_back(place);
      continue;
    }
    search.folders.push_back(place);
    for (const std::string& name : names)
      if (is_file(place + "/" + name)) search.files.push_back(place + "/" + name);
  }
  return search;
}

Search search_for(const std::vector<std::string>& names, const std::vector<std::string>& given) {
  Search search;
  for (const auto& more :
       {given, package_folders(), environment_folders(), toolkit_folders("/usr/local")})
    search.folders.insert(search.folders.end(), more.begin(), more.end());
  for (const std::string& name : names) {
    search.files.push_back(name);
    for (const std::string& folder : search.folders)
      if (is_file(folder + "/" + name)) search.files.push_back(folder + "/" + name);
  }
  return search;
}

// Says why a file was not loaded: nothing but its name if it does not exist.
std::string load_error(const std::string& file) {
  const char* text = dlerror();
  const std::string words = text != nullptr ? text : file;
  const bool missing = words.compare(0, file.size(), file) == 0 &&
                       words.find("No such file or directory") != std::string::npos;
  return missing ? file : words;
}

const char* bind(Cublas& table, Library library) {
  const char* missing = nullptr;
#define ANOCO_BIND(name, ...) \
  if (!table.name.bind(library) && missing == nullptr) missing = #name;
  ANOCO_CUBLAS_CALLS(ANOCO_BIND)
#undef ANOCO_BIND
  return missing;
}

// The libraries that were loaded, in the order of the search. Never destroyed, see driver.cpp.
class Loader {
 public:
  // Returns the number-th that can be loaded, or NULL if there are no more.
  const Cublas* at(size_t number) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (loaded_.empty() && next_ == 0) begin();
    while (number >= loaded_.size() && next_ < files_.size()) load(files_[next_++]);
    return number < loaded_.size() ? loaded_[number].get() : nullptr;
  }

  // Lets the next call search once more, if nothing was found.
  void look_again() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (loaded_.empty()) next_ = 0;
  }

  size_t preferred() const { return preferred_; }
  void prefer(size_t number) { preferred_ = number; }

  void add(const std::vector<std::string>& folders) {
    const std::lock_guard<std::mutex> lock(mutex_);
    given_.insert(given_.begin(), folders.begin(), folders.end());
  }

  // Says what was tried, and lets the next call look again.
  [[noreturn]] void fail_missing() {
    const std::lock_guard<std::mutex> lock(mutex_);
    next_ = 0;
    std::string tried = "tried " + join(errors_, ", ");
    if (!folders_.empty()) tried += ", looked into " + join(folders_, ", ");
    if (tried.size() > kLongest) tried = tried.substr(0, kLongest) + "...";
    fail(ANOCO_NO_BACKEND,
         "cuBLAS cannot be loaded: " + join(cublas_names(driver().version), " or ") +
             " is needed (" + tried + ")",
         "install it with CUDA, JetPack or pip install nvidia-cublas (nvidia-cublas-cu12 for CUDA "
         "12), or name its file in ANOCO_CUBLAS_LIBRARY");
  }

 private:
  void begin() {
    const char* named = std::getenv("ANOCO_CUBLAS_LIBRARY");
    const std::vector<std::string> names = cublas_names(driver().version);
    errors_.clear();
    if (named != nullptr && named[0] != 0) {
      use(named_by_user(named, names));
    } else if (driver().simulated) {  // it contains cuBLAS as well
      files_ = {""};
    } else {
      use(search_for(names, given_));
    }
  }

  void use(const Search& search) {
    files_ = search.files;
    folders_ = search.folders;
  }

  void load(const std::string& file) {
    const Library library =
        file.empty() ? driver().library : dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return errors_.push_back(load_error(file));
    auto table = std::make_unique<Cublas>();
    table->file = file.empty() ? "the simulated driver" : file;
    if (const char* missing = bind(*table, library))
      errors_.push_back(file + " has no " + missing);
    else
      loaded_.push_back(std::move(table));
  }

  std::mutex mutex_;
  std::vector<std::string> given_, files_, folders_, errors_;
  size_t next_ = 0;  // of files_
  std::vector<std::unique_ptr<const Cublas>> loaded_;
  std::atomic<size_t> preferred_{0};
};

Loader& loader() {
  static Loader* const only = new Loader;
  return *only;
}

}  // namespace

const Cublas& cublas() {
  Loader& all = loader();
  if (const Cublas* found = all.at(all.preferred())) return *found;
  all.fail_missing();
}

bool has_cublas() {
  if (loader().at(loader().preferred()) != nullptr) return true;
  loader().look_again();
  return false;
}

const Cublas& create_cublas_handle(CublasHandle* handle) {
  Loader& all = loader();
  std::vector<std::string> failed;
  int first_code = 0;
  for (size_t number = all.preferred();; ++number) {
    const Cublas* blas = all.at(number);
    if (blas == nullptr) break;
    const int code = blas->cublasCreate_v2.unchecked(handle);
    if (code == 0) {
      all.prefer(number);
      return *blas;
    }
    if (code == kBlasAllocFailed) fail_cublas_call(blas->cublasCreate_v2.name(), code);
    if (failed.empty()) first_code = code;
    failed.push_back(blas->file + ": " + status_name(code));
  }
  if (failed.empty()) all.fail_missing();
  if (failed.size() == 1) fail_cublas_call("cublasCreate_v2", first_code);
  fail(ANOCO_NO_BACKEND,
       "no cuBLAS works with the driver and the device (cublasCreate_v2: " + join(failed, ", ") +
           ")",
       "install that of your driver's version, or name its file in ANOCO_CUBLAS_LIBRARY");
}

void add_cublas_folders(const std::vector<std::string>& folders) { loader().add(folders); }

std::vector<std::string> cublas_names(int driver_version) {
  std::vector<std::string> names;
  for (int major = std::max(driver_version / 1000, kOldestMajor); major >= kOldestMajor; --major)
    names.push_back("libcublas.so." + std::to_string(major));
  return names;
}

std::vector<std::string> toolkit_folders(const std::string& below) {
  std::vector<std::string> folders;
  for (const char* part : {"/cuda*/lib64", "/cuda*/targets/*/lib"}) {
    std::vector<std::string> found;
    add_folders_of(below + part + "/libcublas.so.*", found);
    folders.insert(folders.end(), found.rbegin(), found.rend());
  }
  return folders;
}

void fail_cublas_call(const char* name, int code) {
  const std::string text = std::string(name) + ": " + status_name(code);
  if (code == kBlasAllocFailed) fail(ANOCO_OUT_OF_MEMORY, text + kMoreMemory);
  fail(ANOCO_ENGINE, text + ": cuBLAS failed; check that it fits the driver (anoco-edge doctor)");
}

}  // namespace anoco::gpu
