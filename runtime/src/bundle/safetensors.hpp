// safetensors files: a header in JSON, then numbers without gaps.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bundle/bytes.hpp"

namespace anoco {

enum class TensorType { u8, i16, f16, i32, f32, i64 };  // in the order files are sorted by

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

// The tensors of a file, pointing into `file`, in the order of their data. Refused with a line that
// ends "...: REASON" (ANOCO_BAD_BUNDLE) is what the Python library refuses (gaps, overlaps, sizes
// that do not fit) and data that is not aligned for its type. `what` is the beginning of that line,
// such as "bank-1.safetensors is not a reference bank".
std::vector<Tensor> read_safetensors(std::string_view file, const std::string& what);

// nullptr where there is none of this name.
const Tensor* find_tensor(const std::vector<Tensor>& tensors, std::string_view name);

// The bytes that Python's safetensors.numpy.save writes for these, in whatever order they come.
// Failure (ANOCO_INTERNAL) where the data of one does not fit its shape.
Bytes write_safetensors(std::vector<Tensor> tensors);

}  // namespace anoco
