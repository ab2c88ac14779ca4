// Attacks everything that reads the bytes of a bundle. The first byte of an input chooses what the
// rest is read as; nothing but a Failure of ANOCO_BAD_BUNDLE may result.
//
// Checksums would stop an attacker who cannot compute them, so they are corrected first.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "bundle/checksum.hpp"
#include "bundle/documents.hpp"
#include "bundle/json.hpp"
#include "bundle/onnx_graph.hpp"
#include "bundle/png.hpp"
#include "bundle/safetensors.hpp"
#include "bundle/tensors.hpp"
#include "failure.hpp"

using namespace anoco;

namespace {

void must(bool condition) {
  if (!condition) abort();
}

// The bundle of make_corpus.py.
InputContract contract() {
  InputContract input;
  input.width = input.height = 32;
  input.stride = 16;
  input.rows = input.cols = 2;
  input.dim = 4;
  return input;
}

std::string sealed_again(std::string_view text) {
  Json document = parse_json(text, "file");
  return document.as<Json::Object>() == nullptr ? std::string(text)
                                                : write_with_checksum(std::move(document));
}

void read_json(std::string_view text) {
  const std::string once = write_json(parse_json(text, "file"));
  must(write_json(parse_json(once, "file")) == once);
}

void read_manifest(std::string_view text) { anoco::read_manifest(sealed_again(text), "file"); }

void read_product(std::string_view text) {
  const Product product = anoco::read_product(sealed_again(text), "file");
  const InputContract tiled = contract().tiled(product.tiles);
  must(tiled.rows * tiled.stride == tiled.height && tiled.cols * tiled.stride == tiled.width);
}

void read_bank(std::string_view bytes) {
  Product product;
  product.references.resize(2);
  const BankFile bank = anoco::read_bank(Bytes(bytes.begin(), bytes.end()), "file");
  check_bank(bank, product, contract(), "file");
  for (int64_t i = 0; i < bank.rows; ++i)
    must(bank.reference[i] < 2 && bank.view[i] == 0 && bank.row[i] < 2 && bank.col[i] < 2);
}

void read_tensors(std::string_view bytes) {
  const auto tensors = read_safetensors(bytes, "file");
  const Bytes again = write_safetensors(tensors);
  must(read_safetensors(view(again), "file").size() == tensors.size());
}

void read_baseline(std::string_view bytes) {
  const BaselineGrid grid = anoco::read_baseline(bytes, 3, contract(), "file");
  must(grid.mean.size() == 4 && grid.spread.size() == 4);
}

void read_selftest(std::string_view bytes) { anoco::read_selftest(bytes, contract(), "file"); }

uint32_t crc(std::string_view data) {
  uint32_t c = 0xFFFFFFFF;
  for (const char byte : data) {
    c ^= static_cast<unsigned char>(byte);
    for (int k = 0; k < 8; ++k) c = (c & 1) != 0 ? 0xEDB88320 ^ c >> 1 : c >> 1;
  }
  return ~c;
}

void read_mask(std::string_view bytes) {
  std::string file(bytes);
  for (size_t at = 8; at + 12 <= file.size();) {
    uint32_t length = 0;
    for (size_t i = 0; i < 4; ++i) length = length << 8 | static_cast<unsigned char>(file[at + i]);
    if (length > file.size() - at - 12) break;
    const uint32_t sum = crc(std::string_view(file).substr(at + 4, 4 + length));
    for (size_t i = 0; i < 4; ++i)
      file[at + 8 + length + i] = static_cast<char>(sum >> (24 - 8 * i));
    at += 12 + length;
  }
  const Mask mask = decode_mask(file, "file");
  must(static_cast<int64_t>(mask.set.size()) == mask.width * mask.height);
}

void read_graph(std::string_view bytes) {
  check_graph(bytes, "file", contract(), {{"backbone.onnx.data", 64}});
}

// In the order of make_corpus.py.
constexpr void (*kReaders[])(std::string_view) = {read_manifest, read_product,  read_bank,
                                                  read_baseline, read_selftest, read_mask,
                                                  read_json,     read_tensors,  read_graph};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  // The bytes are copied into a vector, which is aligned as the content of a file is and shows a
  // read beyond its end.
  const Bytes bytes(data + 1, data + size);
  try {
    kReaders[data[0] % std::size(kReaders)](view(bytes));
  } catch (const Failure& failure) {
    must(failure.status == ANOCO_BAD_BUNDLE && !failure.text.empty());
    must(failure.text.find('\n') == failure.text.npos);
  }
  return 0;
}
