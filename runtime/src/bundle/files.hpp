// Reads files. A file that the system cannot read makes the bundle unusable.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>

#include "bundle/bytes.hpp"
#include "bundle/directory.hpp"

namespace anoco {

// A regular file that is read once from beginning to end. Messages call it `name`.
class InputFile {
 public:
  explicit InputFile(const std::filesystem::path& path);  // outside a bundle, links are followed
  InputFile(Descriptor handle, std::string name)
      : handle_(std::move(handle)), name_(std::move(name)) {}

  const std::string& name() const { return name_; }
  int64_t size() const;
  // Returns how many bytes were read, which are fewer than asked for only at the end of the file.
  size_t read(void* out, size_t wanted);

 private:
  [[noreturn]] void refuse() const;

  Descriptor handle_;
  std::string name_;
};

// Reads a whole small file; one of more than `most` bytes is refused.
Bytes read_small_file(InputFile file, size_t most);
inline Bytes read_small_file(const std::filesystem::path& path, size_t most) {
  return read_small_file(InputFile(path), most);
}

// Reads and hashes a file of this size in one pass; another hash is refused (ANOCO_BAD_BUNDLE).
Bytes read_hashed_file(InputFile file, int64_t size, const std::string& sha256);
inline Bytes read_hashed_file(const std::filesystem::path& path, int64_t size,
                              const std::string& sha256) {
  return read_hashed_file(InputFile(path), size, sha256);
}

// Does the same for a file whose content is not needed in memory.
void check_file_hash(InputFile file, const std::string& sha256);

}  // namespace anoco
