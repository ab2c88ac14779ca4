// Reading files: what the system does not hand over is a bundle that cannot be used.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>

#include "bundle/bytes.hpp"
#include "bundle/directory.hpp"

namespace anoco {

// A regular file that is read once, from its beginning to its end; `name` is what messages call it.
class InputFile {
 public:
  explicit InputFile(const std::filesystem::path& path);  // outside a bundle, links are followed
  InputFile(Descriptor handle, std::string name)
      : handle_(std::move(handle)), name_(std::move(name)) {}

  const std::string& name() const { return name_; }
  int64_t size() const;
  // How much was read: less than asked for at the end only.
  size_t read(void* out, size_t wanted);

 private:
  [[noreturn]] void refuse() const;

  Descriptor handle_;
  std::string name_;
};

// A small file whole; one over `most` bytes is refused.
Bytes read_small_file(InputFile file, size_t most);
inline Bytes read_small_file(const std::filesystem::path& path, size_t most) {
  return read_small_file(InputFile(path), most);
}

// A file of this size, read and hashed in one go; another hash is refused (ANOCO_BAD_BUNDLE).
Bytes read_hashed_file(InputFile file, int64_t size, const std::string& sha256);
inline Bytes read_hashed_file(const std::filesystem::path& path, int64_t size,
                              const std::string& sha256) {
  return read_hashed_file(InputFile(path), size, sha256);
}

// The same for one that need not be in memory.
void check_file_hash(InputFile file, const std::string& sha256);

}  // namespace anoco
