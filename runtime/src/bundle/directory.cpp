#include "bundle/directory.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <system_error>

#include "failure.hpp"

namespace anoco {
namespace {

namespace fs = std::filesystem;

constexpr int kFolder = O_RDONLY | O_DIRECTORY | O_CLOEXEC;

[[noreturn]] void throw_errno() { throw std::system_error(errno, std::system_category()); }

int checked(int result) {
  if (result < 0) throw_errno();
  return result;
}

// Network and FUSE file systems let a signal interrupt a call; the call is then repeated.
template <class Call>
int uninterrupted(Call&& call) {
  int result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

void sync_file(int handle) {
  checked(uninterrupted([&] { return ::fsync(handle); }));
}

bool is_missing(const std::system_error& error) {
  return error.code() == std::errc::no_such_file_or_directory;
}

const char* kind_name(mode_t kind) {
  switch (kind) {
    case S_IFDIR: return "a folder";
    case S_IFREG: return "a file";
    case S_IFIFO: return "a FIFO";
    case S_IFSOCK: return "a socket";
    default: return "a device";
  }
}

std::vector<std::string> components(const fs::path& folder, const std::string& name) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('/', begin), name.size());
    parts.push_back(name.substr(begin, end - begin));
    begin = end + 1;
    if (parts.back().empty() || parts.back() == "." || parts.back() == "..")
      fail(ANOCO_BAD_BUNDLE, folder.string() + "/" + name + " points outside the bundle",
           "do not use this bundle: make it with anoco-edge export");
  }
  return parts;
}

std::string split_last(std::vector<std::string>& parts) {
  std::string last = std::move(parts.back());
  parts.pop_back();
  return last;
}

void write_all(int file, std::string_view data) {
  while (!data.empty()) {
    const ssize_t done = ::write(file, data.data(), data.size());
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) throw_errno();
    data.remove_prefix(size_t(done));
  }
}

}  // namespace

// ---- Descriptor

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(number_, other.number_);
  return *this;
}

Descriptor::~Descriptor() {
  if (number_ >= 0) ::close(number_);
}

// ---- Folders

Directory Directory::open(const fs::path& path) {
  const auto opening = [&] { return ::open(path.c_str(), kFolder); };
  return {path, Descriptor(checked(uninterrupted(opening)))};
}

Directory Directory::copy() const {
  return {path_, Descriptor(checked(::fcntl(handle_.number(), F_DUPFD_CLOEXEC, 0)))};
}

Directory Directory::folder(const std::string& name) const {
  return walk(components(path_, name), false);
}

Directory Directory::make_folder(const std::string& name) const {
  return walk(components(path_, name), true);
}

Directory Directory::walk(const std::vector<std::string>& parts, bool create) const {
  Directory current = copy();
  for (const std::string& part : parts) current = current.enter(part, create);
  return current;
}

Directory Directory::enter(const std::string& part, bool create) const {
  const auto opening = [&] {
    return ::openat(handle_.number(), part.c_str(), kFolder | O_NOFOLLOW);
  };
  int handle = uninterrupted(opening);
  if (handle < 0 && errno == ENOENT && create) {
    if (::mkdirat(handle_.number(), part.c_str(), 0777) != 0 && errno != EEXIST) throw_errno();
    sync();
    handle = uninterrupted(opening);
  }
  if (handle < 0) {
    const int error = errno;
    if (error == ELOOP || error == ENOTDIR) check(part, S_IFDIR);
    throw std::system_error(error, std::system_category());
  }
  return {path_ / part, Descriptor(handle)};
}

std::vector<std::string> Directory::names() const {
  // The listing needs a handle of its own, because reading moves its position.
  Descriptor handle(
      checked(uninterrupted([&] { return ::openat(handle_.number(), ".", kFolder); })));
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(::fdopendir(handle.number()), ::closedir);
  if (entries == nullptr) throw_errno();
  handle.release();  // closedir closes it
  std::vector<std::string> found;
  errno = 0;
  while (const dirent* entry = ::readdir(entries.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") found.push_back(name);
    errno = 0;
  }
  if (errno != 0) throw_errno();
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<std::string> Directory::files() const {
  std::vector<std::string> found;
  for (const std::string& name : names()) try {
      if (mode(name) == S_IFDIR) {
        for (const std::string& file : folder(name).files()) found.push_back(name + "/" + file);
      } else {
        check(name, S_IFREG);
        found.push_back(name);
      }
    } catch (const std::system_error& error) {
      if (!is_missing(error)) throw;  // another process may have deleted it meanwhile
    }
  return found;
}

bool Directory::holds_folder(const std::string& name) const {
  try {
    return mode(name) == S_IFDIR;
  } catch (const std::system_error& error) {
    if (!is_missing(error)) throw;
    return false;
  }
}

void Directory::sync() const { sync_file(handle_.number()); }

// ---- Files

bool Directory::exists(const std::string& name) const {
  std::vector<std::string> parts = components(path_, name);
  const std::string last = split_last(parts);
  try {
    walk(parts, false).check(last, S_IFREG);
    return true;
  } catch (const std::system_error& error) {
    if (!is_missing(error)) throw;
    return false;
  }
}

Descriptor Directory::open_file(const std::string& name) const {
  std::vector<std::string> parts = components(path_, name);
  const std::string last = split_last(parts);
  return walk(parts, false).open_part(last, O_RDONLY, false);
}

Descriptor Directory::open_lock(const std::string& name) const {
  return open_part(name, O_RDWR | O_CREAT, true);
}

void Directory::put(const std::string& name, std::string_view data) const {
  std::vector<std::string> parts = components(path_, name);
  const std::string last = split_last(parts);
  const std::string temporary = kTemporary + last + "-" + std::to_string(getpid());
  const Directory above = walk(parts, true);
  const int folder = above.handle_.number();
  ::unlinkat(folder, temporary.c_str(), 0);  // left behind by an earlier process with the same id
  try {
    constexpr int kNew = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    const Descriptor file(
        checked(uninterrupted([&] { return ::openat(folder, temporary.c_str(), kNew, 0666); })));
    write_all(file.number(), data);
    sync_file(file.number());
    checked(::renameat(folder, temporary.c_str(), folder, last.c_str()));
  } catch (...) {
    ::unlinkat(folder, temporary.c_str(), 0);
    throw;
  }
}

void Directory::remove(const std::string& name) const {
  std::vector<std::string> parts = components(path_, name);
  const std::string last = split_last(parts);
  try {
    checked(::unlinkat(walk(parts, false).handle_.number(), last.c_str(), 0));
  } catch (const std::system_error& error) {
    if (!is_missing(error)) throw;
  }
}

// ---- One component

mode_t Directory::mode(const std::string& part) const {
  struct stat found;
  checked(::fstatat(handle_.number(), part.c_str(), &found, AT_SYMLINK_NOFOLLOW));
  const mode_t kind = found.st_mode & S_IFMT;
  if (kind == S_IFLNK)
    fail(ANOCO_BAD_BUNDLE,
         (path_ / part).string() + " is a link; a bundle contains no links: copy the file itself");
  return kind;
}

void Directory::check(const std::string& part, mode_t wanted) const {
  check_mode(part, mode(part), wanted);
}

void Directory::check_mode(const std::string& part, mode_t found, mode_t wanted) const {
  if (found != wanted)
    fail(ANOCO_BAD_BUNDLE, (path_ / part).string() + " is " + kind_name(found) + ", not " +
                               kind_name(wanted) + "; remove it, or copy the bundle again");
}

Descriptor Directory::open_part(const std::string& part, int flags, bool create) const {
  try {  // check first, because opening a device may have side effects
    check(part, S_IFREG);
  } catch (const std::system_error& error) {
    if (!create || !is_missing(error)) throw;
  }
  constexpr int kAlways = O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  Descriptor file(checked(uninterrupted(
      [&] { return ::openat(handle_.number(), part.c_str(), flags | kAlways, 0644); })));
  struct stat found;
  checked(::fstat(file.number(), &found));
  check_mode(part, found.st_mode & S_IFMT, S_IFREG);
  return file;
}

}  // namespace anoco
