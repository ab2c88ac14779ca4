// Shows what the library reads, for tests that compare it with what Python reads or wrote:
//
//   read_bundle bundle FOLDER         everything in it, as JSON
//   read_bundle graphs FOLDER         of each graph in it, by name, "accepted" or why not
//   read_bundle WHAT FILE             one file, read and written again; WHAT is json, seal, sealed,
//                                     safetensors or mask
//   read_bundle verdicts -            for each folder named by a line of stdin a line: the status,
//                                     and everything in it, or what is wrong
//
// What is refused goes to stderr, with the status as exit code.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iostream>
#include <iterator>

#include "bundle/bundle.hpp"
#include "bundle/checksum.hpp"
#include "bundle/json.hpp"
#include "bundle/onnx_graph.hpp"
#include "bundle/png.hpp"
#include "bundle/safetensors.hpp"
#include "bundle/sha256.hpp"
#include "failure.hpp"

namespace anoco {

using Array = Json::Array;
using Object = Json::Object;

template <class T>
Json hash(const T* values, int64_t count) {
  return sha256_hex(
      {reinterpret_cast<const char*>(values), static_cast<size_t>(count) * sizeof(T)});
}

template <class T>
Json hash(const std::vector<T>& values) {
  return hash(values.data(), static_cast<int64_t>(values.size()));
}

Json show(const FileRecord& record) {
  return Object{{"path", record.path}, {"sha256", record.sha256}, {"size", record.size}};
}

Json show(const Affine& view) { return Array(view.begin(), view.end()); }

Json show(const Point& point) { return Array{point.first, point.second}; }

Json show(Fit fit) { return fit == Fit::stretch ? "stretch" : "letterbox"; }

template <class T>
Json show(const std::vector<T>& values) {
  Array items;
  for (const T& value : values) {
    if constexpr (std::is_same_v<T, int64_t>)
      items.push_back(value);
    else
      items.push_back(show(value));
  }
  return items;
}

template <class T>
Json show(const std::optional<T>& value) {
  return value ? show(*value) : Json();
}

Json show(const Tiles& tiles) {
  return Object{{"width", tiles.width},
                {"height", tiles.height},
                {"columns", show(tiles.columns)},
                {"rows", show(tiles.rows)},
                {"fit", show(tiles.fit)}};
}

Json show(const InputContract& input) {
  Array fill;
  for (const int color : input.fill) fill.push_back(color);
  return Object{{"width", input.width}, {"height", input.height}, {"fit", show(input.fit)},
                {"fill", fill},         {"stride", input.stride}, {"rows", input.rows},
                {"cols", input.cols},   {"dim", input.dim}};
}

Json show(const Reference& reference) {
  return Object{{"name", reference.name},     {"file", show(reference.file)},
                {"pixels", reference.pixels}, {"width", reference.width},
                {"height", reference.height}, {"views", show(reference.views)}};
}

Json show(const Baseline& baseline) {
  return Object{{"file", show(baseline.file)}, {"sigmas", baseline.sigmas}};
}

Json show(const BankFile& bank) {
  return Object{{"half", bank.half},
                {"rows", bank.rows},
                {"dim", bank.dim},
                {"features", hash(static_cast<const char*>(bank.features),
                                  bank.rows * bank.dim * (bank.half ? 2 : 4))},
                {"reference", hash(bank.reference, bank.rows)},
                {"view", hash(bank.view, bank.rows)},
                {"row", hash(bank.row, bank.rows)},
                {"col", hash(bank.col, bank.rows)}};
}

Json show(const Mask& mask) {
  return Object{{"width", mask.width}, {"height", mask.height}, {"set", hash(mask.set)}};
}

Json show(const BaselineGrid& grid) {
  return Object{{"mean", hash(grid.mean)}, {"spread", hash(grid.spread)}, {"sigmas", grid.sigmas}};
}

Json show(const SelfTest& test) {
  return Object{{"pixels", hash(test.pixels)},
                {"features", hash(test.features)},
                {"energies", hash(test.energies)}};
}

Json show(const Manifest& manifest) {
  return Object{{"backbone", manifest.backbone},
                {"precision", manifest.precision},
                {"random_weights", manifest.random_weights},
                {"input", show(manifest.input)},
                {"files", show(manifest.files)}};
}

template <class T>
Json word(T which, std::initializer_list<const char*> words) {
  return words.begin()[static_cast<int>(which)];
}

Json show(const Product& product) {
  Object fields{
      {"name", product.name},
      {"generation", product.generation},
      {"lambda", product.lambda},
      {"floor", product.floor},
      {"metric", word(product.metric, {"product", "l2", "cosine"})},
      {"pooling", word(product.pooling, {"max", "top5", "smooth"})},
      {"tta", word(product.tta, {"none", "rotations", "references", "paper"})},
      {"views", show(product.views)},
      {"tiles", show(product.tiles)},
      {"any_size", product.any_size},
      {"min_area", product.min_area},
      {"region", show(product.region)},
      {"mask", show(product.mask)},
      {"threshold_kind",
       word(product.threshold_kind, {"none", "provisional", "conformal", "manual"})},
      {"threshold", product.threshold},
      {"calibrated", product.calibrated},
      {"calibration_lost", product.calibration_lost},
      {"baseline", show(product.baseline)},
      {"thinned", product.thinned},
      {"references", show(product.references)},
      {"bank", show(product.bank)},
      {"bank_half", product.bank_half},
      {"dropped_patches", product.dropped_patches},
  };
  if (product.bf16) fields.emplace_back("cpu_precision", "bf16");
  if (product.lambda_relative) fields.emplace_back("lambda_kind", "relative");
  return fields;
}

Json show(const Bundle& bundle) {
  Object products;
  for (const std::string& name : bundle.products()) {
    const Product product = bundle.product(name);
    bundle.check_references(product);
    products.emplace_back(name,
                          Object{{"product", show(product)},
                                 {"canvas", show(bundle.manifest().input.tiled(product.tiles))},
                                 {"bank", product.bank ? show(bundle.bank(product)) : Json()},
                                 {"mask", show(bundle.mask(product))},
                                 {"baseline", show(bundle.baseline(product))}});
  }
  return Object{{"manifest", show(bundle.manifest())},
                {"graph", bundle.graph().lexically_relative(bundle.path()).string()},
                {"selftest", show(bundle.selftest())},
                {"products", products}};
}

// Of a graph that stands for the backbone of tests/support/tiny_bundle.py, whose weights may lie in
// a file of 4096 bytes beside it; read from disk and from memory.
std::string verdict(const std::filesystem::path& path) {
  InputContract input;
  input.width = input.height = 64;
  input.stride = 16;
  input.rows = input.cols = 4;
  input.dim = 8;
  const SizesByName data_files{{"backbone.onnx.data", 4096}};
  std::ifstream stream(path, std::ios::binary);
  const Bytes file((std::istreambuf_iterator<char>(stream)), {});
  const auto said = [](const auto& check) -> std::string {
    try {
      check();
      return "accepted";
    } catch (const Failure& failure) {
      return failure.text;
    }
  };
  const std::string text = said([&] { check_graph(path, input, data_files); });
  if (said([&] { check_graph(view(file), path.string(), input, data_files); }) != text)
    return "another verdict on the same bytes in memory";
  return text;
}

Json verdicts(const std::filesystem::path& folder) {
  Object found;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    found.emplace_back(entry.path().filename().string(), verdict(entry.path()));
  return found;
}

std::string run(const std::string& what, const std::string& name) {
  if (what == "bundle") return write_json(show(Bundle::open(name)));
  if (what == "graphs") return write_json(verdicts(name));
  std::ifstream stream(name, std::ios::binary);
  const Bytes file((std::istreambuf_iterator<char>(stream)), {});
  if (what == "json") return write_json(parse_json(view(file), name));
  if (what == "seal") return write_with_checksum(parse_json(view(file), name));
  if (what == "sealed") return has_valid_checksum(view(file)) ? "yes" : "no";
  if (what == "mask") return write_json(show(decode_mask(view(file), name)));
  if (what == "safetensors") {
    const Bytes again = write_safetensors(read_safetensors(view(file), name));
    return std::string(view(again));
  }
  fail(ANOCO_INVALID_ARGUMENT, "what is " + what);
}

// One process for many bundles; every line is written out before the next is read.
int verdicts() {
  for (std::string folder; std::getline(std::cin, folder);) {
    int status = ANOCO_OK;
    std::string text;
    try {
      text = run("bundle", folder);
    } catch (const Failure& failure) {
      status = failure.status;
      text = failure.text;
    } catch (const std::exception& error) {
      status = ANOCO_INTERNAL;
      text = error.what();
    }
    std::replace(text.begin(), text.end(), '\n', ' ');
    std::cout << status << ' ' << text << std::endl;
  }
  return 0;
}

}  // namespace anoco

int main(int count, char** words) {
  if (count != 3) return 2;
  if (words[1] == std::string("verdicts")) return anoco::verdicts();
  try {
    const std::string text = anoco::run(words[1], words[2]);
    fwrite(text.data(), 1, text.size(), stdout);
    return 0;
  } catch (const anoco::Failure& failure) {
    fprintf(stderr, "%s", failure.text.c_str());
    return failure.status;
  }
}
