#include "backends/openvino/graph_file.hpp"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>

#include "failure.hpp"

namespace anoco {
namespace {

// Reads a protobuf varint: seven bits per byte, the lowest first; the eighth bit says that another
// byte follows.
bool read_varint(std::istream& file, uint64_t& value) {
  value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const int byte = file.get();
    if (byte < 0) return false;
    value |= uint64_t(byte & 0x7f) << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

// Skips a field's value, which may extend beyond the end of the file.
bool skip_value(std::istream& file, uint64_t kind, uint64_t size) {
  uint64_t length = 0;
  switch (kind) {
    case 0: return read_varint(file, length);
    case 1: length = 8; break;
    case 2:
      if (!read_varint(file, length)) return false;
      break;
    case 5: length = 4; break;
    default: return false;
  }
  return length <= size && file.seekg(std::streamoff(length), std::ios::cur);
}

bool is_graph(std::istream& file, uint64_t size) {
  constexpr uint64_t kGraphField = 7, kMessage = 2;
  bool has_graph = false;
  uint64_t tag = 0;
  while (uint64_t(file.tellg()) < size) {
    if (!read_varint(file, tag) || tag >> 3 == 0 || !skip_value(file, tag & 7, size)) return false;
    has_graph |= tag == (kGraphField << 3 | kMessage);
  }
  return has_graph && uint64_t(file.tellg()) == size;
}

}  // namespace

void check_graph_file(const char* path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file)
    fail(ANOCO_BAD_BUNDLE, std::string(path) + " cannot be read: " + std::strerror(errno),
         "copy the bundle again");
  const auto size = uint64_t(file.tellg());
  file.seekg(0);
  if (!is_graph(file, size))
    fail(ANOCO_BAD_BUNDLE, std::string(path) + " is not an ONNX graph, or only a part of one",
         "copy the bundle again");
}

}  // namespace anoco
