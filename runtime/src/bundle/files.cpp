#include "bundle/files.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "bundle/document_parts.hpp"
#include "bundle/sha256.hpp"
#include "failure.hpp"

namespace anoco {
namespace {

constexpr size_t kPiece = size_t{1} << 20;  // stays in the cache between reading and hashing

class File {
 public:
  explicit File(const std::filesystem::path& path)
      : path_(path), handle_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (handle_ < 0) refuse();
  }
  ~File() { ::close(handle_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  // How much was read: less than asked for at the end only.
  size_t read(void* out, size_t wanted) {
    size_t got = 0;
    while (got < wanted) {
      const ssize_t some = ::read(handle_, static_cast<char*>(out) + got, wanted - got);
      if (some == 0) break;
      if (some > 0) got += static_cast<size_t>(some);
      if (some < 0 && errno != EINTR) refuse();
    }
    return got;
  }

 private:
  [[noreturn]] void refuse() const {
    fail(ANOCO_BAD_BUNDLE,
         path_.string() + " cannot be read: " + std::generic_category().message(errno));
  }

  const std::filesystem::path& path_;
  int handle_;
};

}  // namespace

Bytes read_small_file(const std::filesystem::path& path, size_t most) {
  File file(path);
  Bytes bytes, piece(kPiece);
  for (size_t got = kPiece; got == kPiece;) {
    got = file.read(piece.data(), kPiece);
    if (got > most - bytes.size())
      fail(ANOCO_BAD_BUNDLE, path.string() + " has more than " + std::to_string(most) +
                                 " bytes; the bundle is damaged: copy or make it again");
    bytes.insert(bytes.end(), piece.begin(), piece.begin() + static_cast<ptrdiff_t>(got));
  }
  return bytes;
}

Bytes read_hashed_file(const std::filesystem::path& path, int64_t size, const std::string& sha256) {
  File file(path);
  Bytes bytes(static_cast<size_t>(size));
  Sha256 hash;
  for (size_t at = 0; at < bytes.size();) {
    const size_t wanted = std::min(kPiece, bytes.size() - at);
    if (file.read(bytes.data() + at, wanted) < wanted) refuse_changed(path.string());
    hash.update(bytes.data() + at, wanted);
    at += wanted;
  }
  if (hash.hex() != sha256) refuse_changed(path.string());
  return bytes;
}

void check_file_hash(const std::filesystem::path& path, const std::string& sha256) {
  File file(path);
  Bytes piece(kPiece);
  Sha256 hash;
  for (size_t got = kPiece; got == kPiece;) {
    got = file.read(piece.data(), kPiece);
    hash.update(piece.data(), got);
  }
  if (hash.hex() != sha256) refuse_changed(path.string());
}

}  // namespace anoco
