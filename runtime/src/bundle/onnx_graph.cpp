#include "bundle/onnx_graph.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <system_error>
#include <vector>

#include "bundle/bytes.hpp"
#include "failure.hpp"

namespace anoco {
namespace {

constexpr int64_t kMostFields = 1'000'000;  // graphs that we export have fewer than 100,000
constexpr uint64_t kMostText = 4096;        // bytes of a name that we look at
constexpr size_t kShownText = 80;           // characters of it in an error
constexpr size_t kWindow = size_t{1} << 16;
constexpr std::string_view kOrtFormat = "ORTM";

constexpr uint64_t kFloat = 1, kUint8 = 2;
// The size of a number in bytes, by TensorProto.DataType. It is 0 for strings and packed types,
// which cannot be external.
constexpr std::array<uint64_t, 21> kNumberBytes{0, 4, 1, 1, 2,  2, 4, 8, 0, 1, 2,
                                                8, 4, 8, 8, 16, 2, 1, 1, 1, 1};
constexpr uint64_t kGraphType = 5, kGraphsType = 10, kLastType = 14;  // of AttributeProto

std::string shown(std::string_view text) {
  std::string ascii(text.substr(0, kShownText));
  for (char& c : ascii)
    if (static_cast<unsigned char>(c) >= 0x80) c = '?';
  return anoco::quoted(ascii);
}

// ---- Where the bytes are ----

// A file that is read in pieces, or bytes in memory, which are a single piece.
class Content {
 public:
  explicit Content(std::string_view bytes) : size_(bytes.size()), window_(bytes) {}
  Content(int handle, uint64_t size, const std::string& name)
      : handle_(handle), size_(size), name_(&name), buffer_(kWindow) {}

  uint64_t size() const { return size_; }

  unsigned char byte(uint64_t at) {
    if (at - start_ >= window_.size()) {
      start_ = at;
      window_ = read(at, buffer_.data(), kWindow);
    }
    return static_cast<unsigned char>(window_[at - start_]);
  }

  std::string text(uint64_t start, uint64_t end) {
    if (handle_ < 0) return std::string(window_.substr(start, end - start));
    std::string found(end - start, 0);
    read(start, found.data(), found.size());
    return found;
  }

 private:
  std::string_view read(uint64_t at, char* out, size_t wanted) {
    wanted = std::min<uint64_t>(wanted, size_ - at);
    for (size_t got = 0; got < wanted;) {
      const ssize_t some = ::pread(handle_, out + got, wanted - got, off_t(at + got));
      if (some < 0 && errno == EINTR) continue;
      if (some < 0) cannot(std::generic_category().message(errno));
      if (some == 0) cannot("it became shorter while it was read");
      got += size_t(some);
    }
    return {out, wanted};
  }

  [[noreturn]] void cannot(const std::string& why) const {
    fail(ANOCO_BAD_BUNDLE, *name_ + " cannot be read: " + why, "copy the bundle again");
  }

  int handle_ = -1;
  uint64_t size_ = 0, start_ = 0;
  const std::string* name_ = nullptr;
  std::vector<char> buffer_;
  std::string_view window_;
};

// ---- Protobuf ----

enum Wire : uint64_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

// A field of a message that is looked at.
struct KnownField {
  uint64_t number;
  Wire wire;
  bool once;
};

struct Message {
  const char* title;
  std::vector<KnownField> fields;
};

// The range of bytes of a message.
struct Span {
  uint64_t start = 0, end = 0;
};

// The number of a field and its value or, for a value of bytes, their range.
struct Field {
  uint64_t number = 0, value = 0;
  Span bytes;
};

const Message kModel{"the model",
                     {{1, kVarint, true},
                      {2, kBytes, true},
                      {3, kBytes, true},
                      {4, kBytes, true},
                      {5, kVarint, true},
                      {6, kBytes, true},
                      {7, kBytes, true},
                      {8, kBytes, false},
                      {14, kBytes, false},
                      {20, kBytes, false},
                      {25, kBytes, false}}};
const Message kOpset{"an operator set", {{1, kBytes, true}, {2, kVarint, true}}};
const Message kGraph{"the graph",
                     {{2, kBytes, true},
                      {1, kBytes, false},
                      {5, kBytes, false},
                      {11, kBytes, false},
                      {12, kBytes, false},
                      {15, kBytes, false}}};
const Message kNode{"a node",
                    {{3, kBytes, true},
                     {4, kBytes, true},
                     {7, kBytes, true},
                     {1, kBytes, false},
                     {2, kBytes, false},
                     {5, kBytes, false}}};
const Message kAttribute{"an attribute",
                         {{1, kBytes, true},
                          {5, kBytes, true},
                          {6, kBytes, true},
                          {20, kVarint, true},
                          {22, kBytes, true},
                          {10, kBytes, false},
                          {11, kBytes, false},
                          {23, kBytes, false}}};
const Message kSparse{"a sparse tensor", {{1, kBytes, true}, {2, kBytes, true}}};
const Message kTensor{"a tensor",
                      {{2, kVarint, true},
                       {8, kBytes, true},
                       {9, kBytes, true},
                       {14, kVarint, true},
                       {1, kVarint, false},
                       {13, kBytes, false}}};
const Message kEntry{"an entry of external data", {{1, kBytes, true}, {2, kBytes, true}}};
const Message kValue{"an input or output", {{1, kBytes, true}, {2, kBytes, true}}};
const Message kType{"a type", {{1, kBytes, true}}};
const Message kTensorType{"a tensor's type", {{1, kVarint, true}, {2, kBytes, true}}};
const Message kShape{"a shape", {{1, kBytes, false}}};
const Message kDimension{"a dimension", {{1, kVarint, true}, {2, kBytes, true}}};

// Checks one graph in a single pass.
class GraphChecker {
 public:
  GraphChecker(Content& content, const std::string& name, const InputContract& contract,
               const SizesByName& data_files)
      : content_(content), name_(name), contract_(contract), data_files_(data_files) {}

  void model() {
    if (content_.size() >= 8 && content_.text(4, 8) == kOrtFormat)
      broken("it is in ONNX Runtime's own format");
    std::optional<Span> found;
    bool has_opset = false;
    each(kModel, {0, content_.size()}, [&](const Field& field) {
      if (field.number == 7) found = field.bytes;
      if (field.number == 8) opset(field.bytes);
      has_opset |= field.number == 8;
      if (field.number == 20) refuse("holds instructions for training");
      if (field.number == 25) refuse("defines functions");
    });
    if (!found) broken("it holds no graph");
    if (!has_opset) broken("it names no operator set");
    graph(*found);
  }

 private:
  // ---- the messages of onnx.proto, from the outside in

  void opset(Span span) {
    each(kOpset, span, [&](const Field& field) {
      if (field.number == 1) check_domain(text(field.bytes));
    });
  }

  void graph(Span span) {
    std::vector<Span> inputs, outputs;
    each(kGraph, span, [&](const Field& field) {
      switch (field.number) {
        case 1: node(field.bytes); break;
        case 5: tensor(field.bytes); break;
        case 11: inputs.push_back(field.bytes); break;
        case 12: outputs.push_back(field.bytes); break;
        case 15: sparse(field.bytes); break;
        default: break;
      }
    });
    value(inputs, "pixels", "takes", kUint8, {contract_.height, contract_.width, 3});
    value(outputs, "features", "gives", kFloat, {contract_.patches(), contract_.dim});
  }

  void node(Span span) {
    each(kNode, span, [&](const Field& field) {
      if (field.number == 4) {
        const std::string name = text(field.bytes);
        if (name == "If" || name == "Loop" || name == "Scan")
          refuse("contains the operator " + shown(name));
      }
      if (field.number == 7) check_domain(text(field.bytes));
      if (field.number == 5) attribute(field.bytes);
    });
  }

  void attribute(Span span) {
    each(kAttribute, span, [&](const Field& field) {
      const bool is_type = field.number == 20;
      if (field.number == 5 || field.number == 10) tensor(field.bytes);
      if (field.number == 22 || field.number == 23) sparse(field.bytes);
      if (field.number == 6 || field.number == 11 ||
          (is_type && (field.value == kGraphType || field.value == kGraphsType)))
        refuse("contains a graph inside a node");
      if (is_type && field.value > kLastType)
        broken("an attribute has type " + std::to_string(field.value));
    });
  }

  void sparse(Span span) {
    each(kSparse, span, [&](const Field& field) {
      if (field.number == 1 || field.number == 2) tensor(field.bytes);
    });
  }

  void tensor(Span span) {
    std::string name;
    uint64_t type = 0, location = 0;
    bool raw = false;
    std::vector<uint64_t> dims;
    std::vector<Span> entries;
    each(kTensor, span, [&](const Field& field) {
      switch (field.number) {
        case 1: dims.push_back(field.value); break;
        case 2: type = field.value; break;
        case 8: name = text(field.bytes); break;
        case 9: raw = true; break;
        case 13: entries.push_back(field.bytes); break;
        case 14: location = field.value; break;
        default: break;
      }
    });
    const std::string whose = "tensor " + shown(name);
    if (location > 1) broken(whose + " has its data at location " + std::to_string(location));
    if (location == 0 && entries.empty()) return;
    if (raw || location == 0) broken(whose + " has its data in two places");
    external(whose, entries, type, dims);
  }

  void external(const std::string& whose, const std::vector<Span>& entries, uint64_t type,
                const std::vector<uint64_t>& dims) {
    std::map<std::string, std::string> found;
    for (const Span& span : entries) {
      const auto [key, text] = entry(span);
      const bool known =
          key == "location" || key == "offset" || key == "length" || key == "checksum";
      if (!known || !found.emplace(key, text).second)
        broken(whose + " has external data with " + shown(key));
    }
    const std::string place = found["location"];
    const auto file = data_files_.find(place);
    if (file == data_files_.end())
      refuse("takes " + whose + " from " + shown(place) +
             ", which is not a weights file of the manifest");
    const uint64_t offset = found.count("offset") != 0 ? whole_number(found["offset"], whose) : 0;
    const uint64_t length = whole_number(found["length"], whose);
    const uint64_t number = type < kNumberBytes.size() ? kNumberBytes[type] : 0;
    if (number == 0) broken(whose + " has external data of type " + std::to_string(type));
    if (length != product(dims, number))
      broken(whose + " has " + std::to_string(length) +
             " bytes of external data, its shape asks for others");
    if (offset + length > uint64_t(file->second))
      refuse("takes " + whose + " from beyond the end of " + shown(place));
  }

  std::pair<std::string, std::string> entry(Span span) {
    std::pair<std::string, std::string> found;
    each(kEntry, span, [&](const Field& field) {
      if (field.number == 1) found.first = text(field.bytes);
      if (field.number == 2) found.second = text(field.bytes);
    });
    return found;
  }

  // ---- input and output

  using Side = std::optional<uint64_t>;  // none: a dimension that is free

  struct Type {
    uint64_t number = 0;
    std::vector<Side> shape;
  };

  // Checks that there is one value of this name and type, whose first dimension is free and whose
  // other dimensions are fixed.
  void value(const std::vector<Span>& values, const std::string& wanted, const std::string& verb,
             uint64_t wanted_type, const std::vector<int64_t>& wanted_shape) {
    if (values.size() != 1)
      refuse(verb + " " + std::to_string(values.size()) + " values, not " + wanted + " alone");
    std::string name;
    Type type;
    each(kValue, values[0], [&](const Field& field) {
      if (field.number == 1) name = text(field.bytes);
      if (field.number == 2) type = type_of(field.bytes);
    });
    if (name != wanted) refuse(verb + " " + shown(name) + ", not " + wanted);
    if (type.number != wanted_type)
      refuse(verb + " " + wanted + " of type " + std::to_string(type.number) + ", not " +
             std::to_string(wanted_type));
    const Side batch = type.shape.empty() ? Side() : type.shape[0];
    const bool has_batch = !type.shape.empty();
    if (has_batch) type.shape.erase(type.shape.begin());
    const bool fits =
        has_batch && !batch && type.shape.size() == wanted_shape.size() &&
        std::equal(type.shape.begin(), type.shape.end(), wanted_shape.begin(),
                   [](const Side& side, int64_t size) { return side && *side == uint64_t(size); });
    if (fits) return;
    std::string has, says;
    for (const Side& side : type.shape)
      has += (has.empty() ? "" : ", ") + (side ? std::to_string(*side) : "?");
    for (const int64_t side : wanted_shape)
      says += (says.empty() ? "" : ", ") + std::to_string(side);
    refuse(verb + " " + wanted + " of shape (" + has + ")" +
           (batch ? " in batches of " + std::to_string(*batch) : "") + ", the manifest says (" +
           says + ")");
  }

  Type type_of(Span span) {
    Type found;
    each(kType, span, [&](const Field& field) {
      if (field.number == 1) found = tensor_type(field.bytes);
    });
    return found;
  }

  Type tensor_type(Span span) {
    Type found;
    each(kTensorType, span, [&](const Field& field) {
      if (field.number == 1) found.number = field.value;
      if (field.number == 2) found.shape = shape(field.bytes);
    });
    return found;
  }

  std::vector<Side> shape(Span span) {
    std::vector<Side> sides;
    each(kShape, span, [&](const Field& field) {
      if (field.number == 1) sides.push_back(dimension(field.bytes));
    });
    return sides;
  }

  Side dimension(Span span) {
    Side size;
    bool named = false;
    each(kDimension, span, [&](const Field& field) {
      if (field.number == 1) size = field.value;
      if (field.number == 2) named = true;
    });
    if (size && named) broken("a dimension has a number and a name");
    return size;
  }

  // ---- protobuf

  // Calls `look` with each field, after checking that the known fields have the expected wire type.
  template <class Look>
  void each(const Message& message, Span span, const Look& look) {
    uint32_t seen = 0;
    for (uint64_t at = span.start; at < span.end;) {
      if (--left_ < 0) broken("it has more than " + std::to_string(kMostFields) + " fields");
      const uint64_t tag = varint(at, span.end), wire = tag & 7;
      Field field;
      field.number = tag >> 3;
      if (field.number == 0 || tag > UINT32_MAX)
        broken(std::string(message.title) + " has a field without a number");
      for (const KnownField& known : message.fields)
        if (known.number == field.number) check_known(message, known, wire, seen);
      read_value(wire, at, span.end, field);
      look(field);
    }
  }

  void check_known(const Message& message, const KnownField& known, uint64_t wire, uint32_t& seen) {
    const uint32_t bit = uint32_t{1} << known.number;  // the highest that we look at is 25
    const char* wrong = wire != known.wire                ? " of another kind"
                        : known.once && (seen & bit) != 0 ? " twice"
                                                          : nullptr;
    if (wrong != nullptr)
      broken(std::string(message.title) + " has field " + std::to_string(known.number) + wrong);
    seen |= bit;
  }

  void read_value(uint64_t wire, uint64_t& at, uint64_t end, Field& field) {
    uint64_t length = 0;
    switch (wire) {
      case kVarint: field.value = varint(at, end); return;
      case kBytes: length = varint(at, end); break;
      case kFixed64: length = 8; break;
      case kFixed32: length = 4; break;
      default: broken("a field is of kind " + std::to_string(wire));
    }
    if (length > end - at) broken("a field reaches beyond what it is in");
    field.bytes = {at, at + length};
    at += length;
  }

  // Reads a varint: seven bits per byte, the lowest first; the eighth bit says that another byte
  // follows.
  uint64_t varint(uint64_t& at, uint64_t end) {
    uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      if (at >= end) broken("it ends in the middle of a number");
      const unsigned char byte = content_.byte(at++);
      if (shift == 63 && byte > 1) break;
      value |= uint64_t(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    broken("a number has more than 64 bits");
  }

  std::string text(Span span) {
    if (span.end - span.start > kMostText)
      broken("a name has more than " + std::to_string(kMostText) + " bytes");
    return content_.text(span.start, span.end);
  }

  // ---- verdicts

  void check_domain(const std::string& domain) {
    if (!domain.empty() && domain != "ai.onnx")
      refuse("uses operators of " + shown(domain) + ", which are not ONNX's own");
  }

  uint64_t whole_number(const std::string& digits, const std::string& whose) {
    const bool fits = !digits.empty() && digits.size() <= 18 &&
                      digits.find_first_not_of("0123456789") == digits.npos;
    if (!fits) broken(whose + " has external data at " + shown(digits));
    return std::stoull(digits);
  }

  // Returns a number that is too large for any file if the shape is.
  static uint64_t product(const std::vector<uint64_t>& dims, uint64_t total) {
    constexpr uint64_t kTooLarge = uint64_t{1} << 63;
    for (const uint64_t side : dims)
      if (__builtin_mul_overflow(total, side, &total) || total >= kTooLarge) return kTooLarge;
    return total;
  }

  [[noreturn]] void broken(const std::string& why) const {
    fail_damaged(name_ + " is not an ONNX graph, or only a part of one: " + why);
  }

  [[noreturn]] void refuse(const std::string& why) const {
    fail(ANOCO_BAD_BUNDLE,
         name_ + " " + why + "; do not use this bundle: make it with anoco-edge export");
  }

  Content& content_;
  const std::string& name_;
  const InputContract& contract_;
  const SizesByName& data_files_;
  int64_t left_ = kMostFields;
};

// Keeps a file open while it is checked.
class GraphFile {
 public:
  explicit GraphFile(const std::string& name)
      : name_(name), handle_(::open(name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    struct stat about {};
    if (handle_ < 0 || ::fstat(handle_, &about) != 0) {
      const std::string why = std::generic_category().message(errno);
      if (handle_ >= 0) ::close(handle_);
      fail(ANOCO_BAD_BUNDLE, name_ + " cannot be read: " + why, "copy the bundle again");
    }
    size_ = uint64_t(about.st_size);
  }
  ~GraphFile() { ::close(handle_); }
  GraphFile(const GraphFile&) = delete;
  GraphFile& operator=(const GraphFile&) = delete;

  Content content() const { return {handle_, size_, name_}; }

 private:
  const std::string& name_;
  int handle_;
  uint64_t size_ = 0;
};

}  // namespace

void check_graph(const std::filesystem::path& graph, const InputContract& contract,
                 const SizesByName& data_files) {
  const std::string name = graph.string();
  const GraphFile file(name);
  Content content = file.content();
  GraphChecker(content, name, contract, data_files).model();
}

void check_graph(std::string_view graph, const std::string& name, const InputContract& contract,
                 const SizesByName& data_files) {
  Content content(graph);
  GraphChecker(content, name, contract, data_files).model();
}

}  // namespace anoco
