#include "bundle/commit.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string_view>
#include <system_error>
#include <thread>

#include "failure.hpp"

namespace anoco {
namespace {

namespace fs = std::filesystem;

constexpr char kTemporary[] = ".tmp-", kLock[] = ".lock", kCurrent[] = "product.json";

// ---- Errors. Inside this file they are std::system_error, as std::filesystem has them.

[[noreturn]] void throw_errno() { throw std::system_error(errno, std::system_category()); }

int checked(int result) {
  if (result < 0) throw_errno();
  return result;
}

const char* hint(int error) {
  switch (error) {
    case ENOSPC: return "the disk is full: free some space; nothing was changed";
    case EDQUOT: return "the quota is used up: free some space; nothing was changed";
    case EFBIG: return "a file may not grow that large here (ulimit -f); nothing was changed";
    case EROFS: return "the place is read-only: copy the bundle to where it can be written";
    case EACCES:
    case EPERM: return "no permission to write: copy the bundle to where it can be written";
    default: return "nothing was changed";
  }
}

[[noreturn]] void fail_to_write(const fs::path& what, const std::error_code& error,
                                const char* advice) {
  fail(ANOCO_STORAGE, "cannot write " + what.string() + ": " + error.message() + "; " + advice);
}

template <class Work>
auto writing(const fs::path& what, Work&& work) {
  try {
    return work();
  } catch (const std::system_error& error) {
    fail_to_write(what, error.code(), hint(error.code().value()));
  }
}

// ---- Files

class Handle {
 public:
  Handle(const fs::path& path, int flags) : fd_(checked(open(path.c_str(), flags, 0666))) {}
  ~Handle() { close(fd_); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  void write_all(std::string_view data) {
    while (!data.empty()) {
      const ssize_t done = write(fd_, data.data(), data.size());
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) throw_errno();
      data.remove_prefix(size_t(done));
    }
  }
  void sync() { checked(fsync(fd_)); }

 private:
  int fd_;
};

void sync_folder(const fs::path& folder) { Handle(folder, O_RDONLY | O_CLOEXEC).sync(); }

// The file is there whole, and on the disk, or not at all.
void write_atomic(const fs::path& path, std::string_view data) {
  const std::string name = kTemporary + path.filename().string() + "-" + std::to_string(getpid());
  const fs::path temporary = path.parent_path() / name;
  try {
    Handle file(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC);
    file.write_all(data);
    file.sync();
    checked(rename(temporary.c_str(), path.c_str()));
  } catch (...) {
    unlink(temporary.c_str());
    throw;
  }
  sync_folder(path.parent_path());
}

std::string read_all(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Half-written files of a process that was killed; nobody writes while the lock is held.
void sweep(const fs::path& folder) {
  std::vector<fs::path> left;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder))
    if (entry.path().filename().string().rfind(kTemporary, 0) == 0) left.push_back(entry.path());
  for (const fs::path& path : left) fs::remove(path);
}

std::string history_path(int64_t generation) {
  return "history/product-" + std::to_string(generation) + ".json";
}

// The number between `before` and `after`; 0 for a file that is not ours.
int64_t number_in(std::string_view name, std::string_view before, std::string_view after) {
  constexpr size_t kMostDigits = 18;
  if (name.size() <= before.size() + after.size() || name.substr(0, before.size()) != before ||
      name.substr(name.size() - after.size()) != after)
    return 0;
  name.remove_prefix(before.size());
  name.remove_suffix(after.size());
  if (name.size() > kMostDigits || name.find_first_not_of("0123456789") != name.npos) return 0;
  return std::stoll(std::string(name));
}

int64_t largest_number(const fs::path& folder, std::string_view before, std::string_view after) {
  int64_t largest = 0;
  if (!fs::is_directory(folder)) return largest;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    largest = std::max(largest, number_in(entry.path().filename().string(), before, after));
  return largest;
}

// ---- The commit

struct Content {
  fs::path path;
  std::string_view data;
};

void write_new(const Content& content) {
  fs::create_directories(content.path.parent_path());
  write_atomic(content.path, content.data);
}

// Everything up to the rename, or nothing.
void write_until_current(const std::vector<Content>& contents, const Content& current) {
  std::vector<fs::path> fresh;
  for (const Content& content : contents)
    if (!fs::exists(content.path)) fresh.push_back(content.path);
  try {
    for (const Content& content : contents) write_new(content);
    write_atomic(current.path, current.data);
  } catch (...) {
    // The rename itself may have happened before the failure: then it is committed.
    if (read_all(current.path) != current.data)
      for (const fs::path& path : fresh) unlink(path.c_str());
    throw;
  }
}

}  // namespace

ProductLock::ProductLock(const fs::path& folder, double seconds) {
  using Clock = std::chrono::steady_clock;
  handle_ = writing(folder, [&] {
    fs::create_directories(folder);
    return checked(open((folder / kLock).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  });
  const Clock::time_point start = Clock::now();
  while (flock(handle_, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    if (error == EINTR) continue;
    const bool held = error == EWOULDBLOCK;
    if (held && std::chrono::duration<double>(Clock::now() - start).count() < seconds) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      continue;
    }
    close(handle_);
    if (held)
      fail(ANOCO_STORAGE,
           "another process is changing " + folder.string() + "; try again when it is done");
    // Some network file systems know no locks.
    fail(ANOCO_STORAGE, "cannot lock " + folder.string() + ": " +
                            std::system_category().message(error) +
                            "; copy the bundle to a local disk to change it");
  }
}

ProductLock::~ProductLock() { close(handle_); }

int64_t next_generation(const fs::path& folder) {
  // A kill between bank and history leaves a bank without its history file.
  return 1 + writing(folder, [&] {
           return std::max(largest_number(folder, "bank-", ".safetensors"),
                           largest_number(folder / "history", "product-", ".json"));
         });
}

void commit(const fs::path& folder, const Generation& generation) {
  const Content current{folder / kCurrent, generation.document};
  const Content history{folder / history_path(generation.number), generation.document};
  std::string before;
  try {
    std::vector<Content> contents;
    for (const NewFile& file : generation.files)
      contents.push_back({folder / file.path, view(file.content)});
    if (generation.parent) {
      const fs::path parent = folder / history_path(*generation.parent);
      if (!fs::exists(parent)) {  // a kill right after the very first commit
        before = read_all(current.path);
        contents.push_back({parent, before});
      }
      contents.push_back(history);
    }
    sweep(folder);
    write_until_current(contents, current);
    // The first generation writes its history last, so that history without a product.json says
    // that it was lost.
    if (!generation.parent) {
      write_new(history);
      sync_folder(folder.parent_path());  // the folder itself may be new
      sync_folder(folder.parent_path().parent_path());
    }
  } catch (const std::system_error& error) {
    const bool done = read_all(current.path) == current.data;
    fail_to_write(folder, error.code(),
                  done ? "the change was made, but may not outlast a power failure"
                       : hint(error.code().value()));
  }
}

}  // namespace anoco
