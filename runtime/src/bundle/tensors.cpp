#include "bundle/tensors.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "bundle/safetensors.hpp"
#include "failure.hpp"
#include "scorer/bank.hpp"

namespace anoco {
namespace {

using Shape = std::vector<int64_t>;

std::string shape_text(const Shape& shape) {
  std::string text;
  for (const int64_t side : shape) text += (text.empty() ? "" : " x ") + std::to_string(side);
  return text.empty() ? "one number" : text;
}

std::string names(const std::vector<Tensor>& tensors) {
  std::vector<std::string> sorted;
  for (const Tensor& tensor : tensors) sorted.push_back(anoco::quoted(tensor.name));
  std::sort(sorted.begin(), sorted.end());
  std::string text;
  for (const std::string& name : sorted) text += (text.empty() ? "" : ", ") + name;
  return text.empty() ? "nothing" : text;
}

std::vector<float> floats(const Tensor& tensor) {
  const auto* first = tensor.as<float>();
  return {first, first + tensor_items(tensor)};
}

// ---- bank

// Works on the bits: a number is not finite if all bits of its exponent are set, and zero if no bit
// other than the sign is set.
template <class Bits, Bits kSign, Bits kExponent>
void check_rows(const BankFile& bank, const std::string& file) {
  const auto* bits = static_cast<const Bits*>(bank.features);
  for (int64_t row = 0; row < bank.rows; ++row, bits += bank.dim) {
    Bits any = 0;
    bool finite = true;
    for (int64_t k = 0; k < bank.dim; ++k) {
      any = static_cast<Bits>(any | bits[k]);
      finite &= (bits[k] & kExponent) != kExponent;
    }
    if (!finite)
      fail(ANOCO_BAD_BUNDLE, file + ": reference patch " + std::to_string(row) +
                                 " contains NaN or infinity; enroll the references again");
    if ((any & static_cast<Bits>(~kSign)) == 0)
      fail(ANOCO_BAD_BUNDLE, file + " contains patches of zero norm; enroll the references again");
  }
}

// Checks the limits of scoring, which no 16-bit number exceeds.
void check_norms(const BankFile& bank, const std::string& file) {
  const auto* features = static_cast<const float*>(bank.features);
  for (int64_t row = 0; row < bank.rows; ++row, features += bank.dim) {
    double squares = 0;
    for (int64_t k = 0; k < bank.dim; ++k) squares += double(features[k]) * features[k];
    if (const char* why = norm_problem(squares))
      fail(ANOCO_BAD_BUNDLE, file + ": reference patch " + std::to_string(row) + " " + why +
                                 "; enroll the references again");
  }
}

template <class T>
const T* column(const std::vector<Tensor>& tensors, const char* name, TensorType type, int64_t rows,
                const std::string& file) {
  const Tensor* tensor = find_tensor(tensors, name);
  if (tensor->type != type || tensor->shape != Shape{rows})
    fail(ANOCO_BAD_BUNDLE, file + ": the provenance columns do not fit its features",
         "enroll the references again");
  return tensor->as<T>();
}

template <class T>
void check_column(const T* values, int64_t rows, size_t end, const char* what,
                  const std::string& file) {
  const auto [least, most] = std::minmax_element(values, values + rows);
  if (*least < 0 || static_cast<size_t>(*most) >= end)
    fail(ANOCO_BAD_BUNDLE,
         file + " names " + what + " that do not exist; enroll the references again");
}

}  // namespace

BankFile read_bank(Bytes bytes, const std::string& file) {
  BankFile bank;
  bank.bytes = std::move(bytes);
  const auto tensors = read_safetensors(view(bank.bytes), file + " is not a reference bank");
  const Tensor* features = find_tensor(tensors, "features");
  bool whole = tensors.size() == 6 && features != nullptr && features->shape.size() == 2;
  for (const char* name : {"norms", "reference", "view", "row", "col"})
    whole &= find_tensor(tensors, name) != nullptr;
  if (!whole)
    fail(ANOCO_BAD_BUNDLE,
         file + " holds " + names(tensors) +
             ", expected 'col', 'features', 'norms', 'reference', 'row', 'view'",
         "enroll the references again");
  bank.half = features->type == TensorType::f16;
  bank.rows = features->shape[0];
  bank.dim = features->shape[1];
  bank.features = features->data.data();
  bank.reference = column<int32_t>(tensors, "reference", TensorType::i32, bank.rows, file);
  bank.view = column<int16_t>(tensors, "view", TensorType::i16, bank.rows, file);
  bank.row = column<int16_t>(tensors, "row", TensorType::i16, bank.rows, file);
  bank.col = column<int16_t>(tensors, "col", TensorType::i16, bank.rows, file);
  if (!bank.half && features->type != TensorType::f32)
    fail(ANOCO_BAD_BUNDLE, file + ": reference features are " + type_name(features->type) +
                               " of shape " + shape_text(features->shape) +
                               "; enroll the references again");
  if (bank.rows == 0)
    fail(ANOCO_BAD_BUNDLE, file +
                               ": there is no reference patch to score against; enroll the "
                               "references again");
  if (bank.half)
    check_rows<uint16_t, 0x8000, 0x7C00>(bank, file);
  else
    check_rows<uint32_t, 0x80000000, 0x7F800000>(bank, file);
  if (!bank.half) check_norms(bank, file);
  return bank;
}

void check_bank(const BankFile& bank, const Product& product, const InputContract& input,
                const std::string& file) {
  if (bank.dim != input.dim)
    fail(ANOCO_BAD_BUNDLE, file + " holds " + std::to_string(bank.dim) +
                               " features per patch, the backbone gives " +
                               std::to_string(input.dim) + "; enroll the references again");
  const InputContract tiled = input.tiled(product.tiles);
  size_t own_views = product.references.empty() ? 0 : product.references[0].views.size();
  for (const Reference& reference : product.references)
    own_views = std::min(own_views, reference.views.size());
  check_column(bank.reference, bank.rows, product.references.size(), "references", file);
  check_column(bank.view, bank.rows, 1 + product.views.size() + own_views, "views", file);
  check_column(bank.row, bank.rows, static_cast<size_t>(tiled.rows), "rows", file);
  check_column(bank.col, bank.rows, static_cast<size_t>(tiled.cols), "columns", file);
}

BaselineGrid read_baseline(std::string_view bytes, double sigmas, const InputContract& input,
                           const std::string& file) {
  const auto tensors = read_safetensors(bytes, file + " is not a baseline");
  const Tensor *mean = find_tensor(tensors, "mean"), *spread = find_tensor(tensors, "spread");
  const auto fits = [&](const Tensor* tensor) {
    return tensor != nullptr && tensor->type == TensorType::f32 &&
           tensor->shape == Shape{input.rows, input.cols};
  };
  bool good = tensors.size() == 2 && fits(mean) && fits(spread);
  // The baseline must be a finite number everywhere: nothing exceeds infinity, so a defect there
  // would pass as good.
  for (int64_t k = 0; good && k < input.patches(); ++k) {
    const double m = mean->as<float>()[k], s = spread->as<float>()[k];
    good =
        m >= 0 && s >= 0 && m + sigmas * s <= std::numeric_limits<float>::max() && std::isfinite(s);
  }
  if (!good) fail(ANOCO_BAD_BUNDLE, file + " does not fit the product; calibrate again");
  return {floats(*mean), floats(*spread), sigmas};
}

SelfTest read_selftest(std::string_view bytes, const InputContract& input,
                       const std::string& file) {
  const auto tensors = read_safetensors(bytes, file + " is not a self-test");
  const auto need = [&](const char* name, TensorType type, const Shape& shape) {
    const Tensor* tensor = find_tensor(tensors, name);
    if (tensor == nullptr || tensor->type != type || tensor->shape != shape)
      fail(ANOCO_BAD_BUNDLE, file + " holds no " + name + " of type " + type_name(type) +
                                 " and shape " + shape_text(shape) + "; export it again");
    return *tensor;
  };
  const Tensor pixels = need("pixels", TensorType::u8, {1, input.height, input.width, 3});
  SelfTest test;
  test.pixels.assign(pixels.as<uint8_t>(), pixels.as<uint8_t>() + tensor_items(pixels));
  test.features = floats(need("features", TensorType::f32, {input.patches(), input.dim}));
  test.energies = floats(need("energies", TensorType::f32, {input.patches() / 2}));
  // Comparisons with NaN are always false, and nothing exceeds a scale of zero: such a test would
  // always pass.
  bool means_something = false;
  for (const float energy : test.energies) means_something |= energy > 0;
  for (const float energy : test.energies) means_something &= std::isfinite(energy);
  for (int64_t patch = 0; patch < input.patches(); ++patch) {
    double squares = 0;
    for (int64_t k = 0; k < input.dim; ++k) {
      const double value = test.features[static_cast<size_t>(patch * input.dim + k)];
      squares += value * value;
    }
    means_something &= squares > 0 && std::sqrt(squares) <= std::numeric_limits<float>::max();
  }
  if (!means_something)
    fail(ANOCO_BAD_BUNDLE,
         file + " expects features or energies that are zero, NaN or infinite; export it again");
  return test;
}

}  // namespace anoco
