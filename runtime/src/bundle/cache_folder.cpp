#include "bundle/cache_folder.hpp"

#include <pwd.h>
#include <unistd.h>

#include <cstdlib>

namespace anoco {
namespace fs = std::filesystem;

fs::path cache_folder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && cache[0] != 0) return fs::path(cache) / "anoco-edge";
  const char* home = std::getenv("HOME");
  if (home == nullptr)
    if (const passwd* user = ::getpwuid(::getuid())) home = user->pw_dir;
  return fs::path(home != nullptr ? home : "") / ".cache" / "anoco-edge";
}

}  // namespace anoco
