// Opens files below one directory without following links, as anoco_edge/storage/beneath.py does.
// Each component of a path is opened relative to the directory before it with O_NOFOLLOW, and
// anything that is not a regular file is refused before a call can block on it.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace anoco {

inline constexpr char kTemporary[] = ".tmp-";

// An open file or directory, which the destructor closes.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(other.number_) { other.number_ = -1; }
  Descriptor& operator=(Descriptor&& other) noexcept;
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor();
  int number() const { return number_; }
  void release() { number_ = -1; }  // the caller closes it

 private:
  int number_;
};

// Names are relative to the directory, with '/' between their components. A link or a special file
// is a Failure (ANOCO_BAD_BUNDLE); every other error is a std::system_error.
class Directory {
 public:
  // The path of the directory itself may contain links, which the user made.
  static Directory open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }

  Directory folder(const std::string& name) const;
  Directory make_folder(const std::string& name) const;  // creates it where it is missing
  std::vector<std::string> names() const;                // all entries, sorted
  std::vector<std::string> files() const;                // all files below it
  bool holds_folder(const std::string& name) const;
  void sync() const;  // makes its entries durable

  bool exists(const std::string& name) const;           // whether it is a regular file
  Descriptor open_file(const std::string& name) const;  // for reading
  Descriptor open_lock(const std::string& name) const;  // creates it where it is missing
  // Writes a file to the disk and then gives it its name by one rename, which is durable after
  // sync() of its folder. Missing folders of the path are created.
  void put(const std::string& name, std::string_view data) const;
  void remove(const std::string& name) const;  // a missing file is not an error

 private:
  Directory(std::filesystem::path path, Descriptor handle)
      : path_(std::move(path)), handle_(std::move(handle)) {}

  Directory copy() const;
  Directory walk(const std::vector<std::string>& parts, bool create) const;
  Directory enter(const std::string& part, bool create) const;
  mode_t mode(const std::string& part) const;  // a link is refused
  void check(const std::string& part, mode_t wanted) const;
  void check_mode(const std::string& part, mode_t found, mode_t wanted) const;
  Descriptor open_part(const std::string& part, int flags, bool create) const;

  std::filesystem::path path_;
  Descriptor handle_;
};

}  // namespace anoco
