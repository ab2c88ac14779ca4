// Reads and writes safetensors files: a header in JSON, followed by the numbers without gaps.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bundle/bytes.hpp"

namespace anoco {

enum class TensorType { u8, i16, f16, i32, f32, i64 };  // in the order by which files are sorted

struct Tensor {
  std::string name;
  TensorType type = TensorType::u8;
  std::vector<int64_t> shape;
  std::string_view data;  // row-major, little-endian; borrowed

  template <class T>
  const T* as() const {
    return reinterpret_cast<const T*>(data.data());
  }
};

const char* type_name(TensorType type);      // as in the file, such as "F32"
int64_t tensor_items(const Tensor& tensor);  // how many numbers its shape holds

// Returns the tensors of a file, in the order of their data; they point into `file`. What the
// Python library refuses (gaps, overlaps, sizes that do not fit) is refused (ANOCO_BAD_BUNDLE), and
// so is data that is not aligned for its type. The text begins with `what`, such as
// "bank-1.safetensors is not a reference bank".
std::vector<Tensor> read_safetensors(std::string_view file, const std::string& what);

// Returns nullptr if there is no tensor of this name.
const Tensor* find_tensor(const std::vector<Tensor>& tensors, std::string_view name);

// Returns the bytes that Python's safetensors.numpy.save writes for these tensors, in whatever
// order they are given. Data that does not fit its shape is a Failure (ANOCO_INTERNAL).
Bytes write_safetensors(std::vector<Tensor> tensors);

}  // namespace anoco
