#include "bundle/safetensors.hpp"

#include <algorithm>
#include <tuple>

#include "bundle/json.hpp"
#include "failure.hpp"

namespace anoco {
namespace {

constexpr int64_t kMostHeader = int64_t{1} << 20;  // bytes; ours have a few hundred
constexpr size_t kMostAxes = 8;

struct TypeInfo {
  const char* name;
  int64_t bytes;
};
constexpr TypeInfo kTypes[] = {{"U8", 1},  {"I16", 2}, {"F16", 2},
                               {"I32", 4}, {"F32", 4}, {"I64", 8}};

const TypeInfo& info(TensorType type) { return kTypes[static_cast<int>(type)]; }

class Header {
 public:
  Header(std::string_view file, const std::string& what) : file_(file), what_(what) {}

  std::vector<Tensor> tensors() {
    if (file_.size() < 8) refuse("it ends before its header");
    uint64_t length = 0;
    for (int i = 7; i >= 0; --i) length = length << 8 | static_cast<unsigned char>(file_[i]);
    if (length > kMostHeader || length > file_.size() - 8) refuse("its header is too large");
    const Json header = parse_json(file_.substr(8, length), what_ + ": its header");
    data_ = file_.substr(8 + length);
    const auto* members = header.as<Json::Object>();
    if (members == nullptr) refuse("its header is not an object");
    for (const auto& [name, about] : *members) {
      if (name == "__metadata__")
        check_metadata(about);
      else
        add(name, about);
    }
    check_gaps();
    return std::move(found_);
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const { fail_damaged(what_ + ": " + why); }

  void check_metadata(const Json& about) const {
    const auto* members = about.as<Json::Object>();
    if (members == nullptr) refuse("its metadata is not an object");
    for (const auto& member : *members)
      if (member.second.as<std::string>() == nullptr) refuse("its metadata holds more than texts");
  }

  void add(const std::string& name, const Json& about) {
    const std::string whose = "tensor " + anoco::quoted(name) + " ";
    const auto* members = about.as<Json::Object>();
    const Json *dtype = about.find("dtype"), *shape = about.find("shape"),
               *offsets = about.find("data_offsets");
    if (members == nullptr || members->size() != 3 || !dtype || !shape || !offsets)
      refuse(whose + "is not described by dtype, shape and data_offsets");
    Tensor tensor;
    tensor.name = name;
    tensor.type = type_of(*dtype, whose);
    tensor.shape = integers(*shape, whose + "has a shape");
    check_shape(tensor, whose);
    const std::vector<int64_t> ends = integers(*offsets, whose + "has data_offsets");
    if (ends.size() != 2 || ends[0] > ends[1] || ends[1] > static_cast<int64_t>(data_.size()))
      refuse(whose + "lies outside the file");
    tensor.data =
        data_.substr(static_cast<size_t>(ends[0]), static_cast<size_t>(ends[1] - ends[0]));
    const int64_t items = tensor_items(tensor), bytes = info(tensor.type).bytes;
    if (items < 0 || items > ends[1] / bytes || items * bytes != ends[1] - ends[0])
      refuse(whose + "has another size than its shape asks for");
    if (reinterpret_cast<uintptr_t>(tensor.data.data()) % static_cast<uintptr_t>(bytes) != 0)
      refuse(whose + "is not aligned");
    found_.push_back(std::move(tensor));
  }

  // Other readers multiply the lengths, so their product must not overflow even if one of them is
  // zero.
  void check_shape(const Tensor& tensor, const std::string& whose) const {
    int64_t room = info(tensor.type).bytes;
    bool fits = tensor.shape.size() <= kMostAxes;
    for (const int64_t side : tensor.shape)
      fits = fits && !__builtin_mul_overflow(room, std::max<int64_t>(side, 1), &room);
    if (!fits) refuse(whose + "has a shape that is not read here");
  }

  TensorType type_of(const Json& dtype, const std::string& whose) const {
    const auto* name = dtype.as<std::string>();
    for (int i = 0; name != nullptr && i < static_cast<int>(std::size(kTypes)); ++i)
      if (*name == kTypes[i].name) return static_cast<TensorType>(i);
    refuse(whose + "has a dtype that is not read here" + (name ? ": " + anoco::quoted(*name) : ""));
  }

  std::vector<int64_t> integers(const Json& list, const std::string& whose) const {
    const auto* items = list.as<Json::Array>();
    std::vector<int64_t> found;
    if (items == nullptr) refuse(whose + " that is not a list");
    for (const Json& item : *items) {
      const auto* number = item.as<int64_t>();
      if (number == nullptr || *number < 0) refuse(whose + " that holds no sizes");
      found.push_back(*number);
    }
    return found;
  }

  void check_gaps() {
    std::sort(found_.begin(), found_.end(), [](const Tensor& a, const Tensor& b) {
      return std::make_tuple(a.data.data(), a.data.size()) <
             std::make_tuple(b.data.data(), b.data.size());
    });
    const char* end = data_.data();
    for (const Tensor& tensor : found_) {
      if (tensor.data.data() != end) refuse("its tensors overlap or leave gaps");
      end += tensor.data.size();
    }
    if (end != data_.data() + data_.size()) refuse("something follows its tensors");
  }

  std::string_view file_, data_;
  const std::string& what_;
  std::vector<Tensor> found_;
};

}  // namespace

const char* type_name(TensorType type) { return info(type).name; }

// Returns -1 if 64 bits cannot hold the number.
int64_t tensor_items(const Tensor& tensor) {
  if (std::count(tensor.shape.begin(), tensor.shape.end(), 0) > 0) return 0;
  int64_t items = 1;
  for (const int64_t side : tensor.shape)
    if (__builtin_mul_overflow(items, side, &items)) return -1;
  return items;
}

std::vector<Tensor> read_safetensors(std::string_view file, const std::string& what) {
  return Header(file, what).tensors();
}

const Tensor* find_tensor(const std::vector<Tensor>& tensors, std::string_view name) {
  const auto found = std::find_if(tensors.begin(), tensors.end(),
                                  [&](const Tensor& tensor) { return tensor.name == name; });
  return found == tensors.end() ? nullptr : &*found;
}

Bytes write_safetensors(std::vector<Tensor> tensors) {
  // The widest types come first, so that everything is aligned without gaps.
  std::sort(tensors.begin(), tensors.end(), [](const Tensor& a, const Tensor& b) {
    return std::tie(b.type, a.name) < std::tie(a.type, b.name);
  });
  std::string header;
  int64_t end = 0;
  for (const Tensor& tensor : tensors) {
    const int64_t start = end, bytes = static_cast<int64_t>(tensor.data.size());
    if (tensor_items(tensor) * info(tensor.type).bytes != bytes)
      fail(ANOCO_INTERNAL, "tensor " + anoco::quoted(tensor.name) + " does not fit its shape");
    end += bytes;
    std::string shape;
    for (const int64_t side : tensor.shape)
      shape += (shape.empty() ? "" : ",") + std::to_string(side);
    header += std::string(header.empty() ? "" : ",") + write_json(tensor.name) + ":{\"dtype\":\"" +
              type_name(tensor.type) + "\",\"shape\":[" + shape + "],\"data_offsets\":[" +
              std::to_string(start) + "," + std::to_string(end) + "]}";
  }
  header = "{" + header + "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  Bytes file;
  file.reserve(8 + header.size() + static_cast<size_t>(end));
  for (int i = 0; i < 8; ++i) file.push_back(static_cast<unsigned char>(header.size() >> 8 * i));
  file.insert(file.end(), header.begin(), header.end());
  for (const Tensor& tensor : tensors)
    file.insert(file.end(), tensor.data.begin(), tensor.data.end());
  return file;
}

}  // namespace anoco
