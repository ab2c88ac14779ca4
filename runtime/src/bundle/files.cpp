#include "bundle/files.hpp"

#include <fcntl.h>
#include <sys/stat.h>
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

}  // namespace

InputFile::InputFile(const std::filesystem::path& path)
    : handle_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)), name_(path.string()) {
  if (handle_.number() < 0) refuse();
  struct stat found;
  if (::fstat(handle_.number(), &found) != 0) refuse();
  if (!S_ISREG(found.st_mode))
    fail(ANOCO_BAD_BUNDLE, name_ + " is not a regular file; copy the bundle again");
}

int64_t InputFile::size() const {
  struct stat found;
  if (::fstat(handle_.number(), &found) != 0) refuse();
  return found.st_size;
}

size_t InputFile::read(void* out, size_t wanted) {
  size_t got = 0;
  while (got < wanted) {
    const ssize_t some = ::read(handle_.number(), static_cast<char*>(out) + got, wanted - got);
    if (some == 0) break;
    if (some > 0) got += static_cast<size_t>(some);
    if (some < 0 && errno != EINTR) refuse();
  }
  return got;
}

void InputFile::refuse() const {
  fail(ANOCO_BAD_BUNDLE, name_ + " cannot be read: " + std::generic_category().message(errno),
       "check the permissions and the disk");
}

Bytes read_small_file(InputFile file, size_t most) {
  Bytes bytes, piece(kPiece);
  for (size_t got = kPiece; got == kPiece;) {
    got = file.read(piece.data(), kPiece);
    if (got > most - bytes.size())
      fail_damaged(file.name() + " has more than " + std::to_string(most) + " bytes");
    bytes.insert(bytes.end(), piece.begin(), piece.begin() + static_cast<ptrdiff_t>(got));
  }
  return bytes;
}

Bytes read_hashed_file(InputFile file, int64_t size, const std::string& sha256) {
  Bytes bytes(static_cast<size_t>(size));
  Sha256 hash;
  for (size_t at = 0; at < bytes.size();) {
    const size_t wanted = std::min(kPiece, bytes.size() - at);
    if (file.read(bytes.data() + at, wanted) < wanted) refuse_changed(file.name());
    hash.update(bytes.data() + at, wanted);
    at += wanted;
  }
  if (hash.hex() != sha256) refuse_changed(file.name());
  return bytes;
}

void check_file_hash(InputFile file, const std::string& sha256) {
  Bytes piece(kPiece);
  Sha256 hash;
  for (size_t got = kPiece; got == kPiece;) {
    got = file.read(piece.data(), kPiece);
    hash.update(piece.data(), got);
  }
  if (hash.hex() != sha256) refuse_changed(file.name());
}

}  // namespace anoco
