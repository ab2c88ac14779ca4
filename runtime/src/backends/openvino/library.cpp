#include "backends/openvino/library.hpp"

#include <dirent.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <sstream>
#include <vector>

namespace anoco {
namespace {

constexpr char kName[] = "libopenvino_c.so";
// The oldest version that was tested. Before 2024.2 the list of element types was different.
constexpr int kOldestYear = 2024, kOldestRelease = 6;

// Returns the newest libopenvino_c.so* in a folder. A path that is not a folder is returned
// unchanged.
std::string file_in(const std::string& where) {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir(where.c_str()), closedir);
  if (folder == nullptr) return where;
  std::string newest;
  while (const dirent* entry = readdir(folder.get())) {
    if (std::strncmp(entry->d_name, kName, sizeof kName - 1) == 0 &&
        strverscmp(entry->d_name, newest.c_str()) > 0)
      newest = entry->d_name;
  }
  if (newest.empty())
    fail(ANOCO_NO_BACKEND, "there is no " + std::string(kName) + " in " + where +
                               ": name the folder of OpenVINO's libraries, in its Python package "
                               "openvino/libs");
  return where + "/" + newest;
}

// Returns the files to try, in order.
std::vector<std::string> candidates(const char* where) {
  if (where == nullptr) where = std::getenv("ANOCO_OPENVINO_LIBRARY");
  if (where != nullptr && where[0] != 0) return {file_in(where)};
  // Only packages for developers contain the first name, which has no version.
  return {kName, ANOCO_OPENVINO_SONAME};
}

void* load(const char* where) {
  std::string tried;
  for (const std::string& file : candidates(where)) {
    if (void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    tried += (tried.empty() ? "" : "; ") + std::string(dlerror());
  }
  fail(ANOCO_NO_BACKEND, "OpenVINO cannot be loaded (" + tried +
                             "): install it with pip install openvino, then name its folder "
                             "openvino/libs in options.library or ANOCO_OPENVINO_LIBRARY");
}

std::string version_of(const OpenVino& ov) {
  ov_version_t found{};
  ov.check(ov.ov_get_openvino_version(&found), ANOCO_NO_BACKEND,
           "OpenVINO does not say its version");
  const std::string build = found.buildNumber;
  ov.ov_version_free(&found);
  return build.substr(0, build.find('-'));
}

void check_version(const std::string& version) {
  int year = 0, release = 0;
  std::sscanf(version.c_str(), "%d.%d", &year, &release);
  if (year > kOldestYear || (year == kOldestYear && release >= kOldestRelease)) return;
  fail(ANOCO_NO_BACKEND,
       "OpenVINO " + version + " is too old: " + std::to_string(kOldestYear) + "." +
           std::to_string(kOldestRelease) + " or newer is needed",
       "run: pip install --upgrade openvino");
}

// Tells whether a line only names a place in OpenVINO's sources, which does not help the user.
bool is_place(const std::string& line) {
  return line.compare(0, 15, "Exception from ") == 0 || line.compare(0, 7, "Check '") == 0;
}

std::string one_line(const char* text) {
  std::istringstream lines(text);
  std::string all, line;
  while (std::getline(lines, line))
    if (!line.empty() && !is_place(line)) all += (all.empty() ? "" : " ") + line;
  return all.empty() ? text : all;
}

const char* what_to_do(anoco_status status) {
  switch (status) {
    case ANOCO_BAD_BUNDLE: return "copy the bundle again, or export it again";
    case ANOCO_NO_BACKEND: return "install OpenVINO again, or use another backend";
    default: return "try another device or backend, and report it if it stays";
  }
}

}  // namespace

OpenVino::OpenVino(const char* where) {
  void* const library = load(where);
#define ANOCO_RESOLVE(function)                                                 \
  function = reinterpret_cast<decltype(function)>(dlsym(library, #function));   \
  if (function == nullptr)                                                      \
  fail(ANOCO_NO_BACKEND, "this version of OpenVINO has no function " #function, \
       "install 2024.6 or newer")
  ANOCO_OPENVINO_FUNCTIONS(ANOCO_RESOLVE);
#undef ANOCO_RESOLVE
  version = version_of(*this);
  check_version(version);
}

void OpenVino::throw_error(ov_status_e result, anoco_status status,
                           const std::string& cannot) const {
  std::string words;
  if (const char* said = ov_get_last_err_msg()) {
    words = one_line(said);
    ov_free(said);
  }
  if (words.empty()) words = ov_get_error_info(result);
  fail(status, cannot + ": " + words, what_to_do(status));
}

}  // namespace anoco
