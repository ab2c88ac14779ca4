// Reads a bundle from disk, with every check that anoco_edge/bundle/store.py makes.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bundle/bytes.hpp"
#include "bundle/files.hpp"
#include "bundle/schema.hpp"

namespace anoco {

// The patch features of the good parts, and where each patch came from. All pointers lead into
// `bytes`.
struct BankFile {
  Bytes bytes;
  bool half = false;
  int64_t rows = 0, dim = 0;
  const void* features = nullptr;
  const int32_t* reference = nullptr;
  const int16_t *view = nullptr, *row = nullptr, *col = nullptr;

  BankFile() = default;
  BankFile(BankFile&&) = default;  // moving keeps the bytes where they are, copying would not
  BankFile& operator=(BankFile&&) = default;
};

// A mask with one byte per pixel, which is 1 where the pixel is set.
struct Mask {
  int64_t width = 0, height = 0;
  std::vector<uint8_t> set;
};

// The mean and the spread of the energy of good parts at every patch of the tiled input.
struct BaselineGrid {
  std::vector<float> mean, spread;
  double sigmas = 0;
};

// One picture with the features and energies that torch computed from it.
struct SelfTest {
  std::vector<uint8_t> pixels;
  std::vector<float> features;  // patches x dim
  std::vector<float> energies;  // of odd patches against even ones
};

// All functions throw a Failure, ANOCO_BAD_BUNDLE or ANOCO_NO_PRODUCT, whose text names the file.
class Bundle {
 public:
  static Bundle open(const std::string& path);

  const std::filesystem::path& path() const { return path_; }
  const Manifest& manifest() const { return manifest_; }

  std::vector<std::string> products() const;       // on disk now, sorted
  Product product(const std::string& name) const;  // read from disk now
  std::string only_product() const;                // "" where there is none; several are a Failure
  std::filesystem::path product_folder(const std::string& name) const;

  BankFile bank(const Product& product) const;
  std::optional<Mask> mask(const Product& product) const;  // the pixels to ignore
  std::optional<BaselineGrid> baseline(const Product& product) const;
  SelfTest selftest() const;
  // Returns the path of backbone.onnx, after checking the hashes of it and of the weights beside
  // it, and that it refers to no other file.
  std::filesystem::path graph() const;
  // Identifies graph and weights by their hashes, as Python's Bundle.graph_identity does.
  std::string graph_identity() const;
  // Checks that every reference picture is there with its recorded size, so that missing evidence
  // shows when the product is loaded.
  void check_references(const Product& product) const;

  // Reads a recorded file below `folder`, after checking its size and hash.
  Bytes read(const FileRecord& record, const std::filesystem::path& folder) const;
  // Returns the bytes of product.json as they are now.
  Bytes product_text(const std::string& name) const;
  // Fails (ANOCO_STORAGE) if another process has replaced this bundle (export --overwrite), because
  // the pending change belongs to the old one.
  void check_not_replaced() const;

 private:
  Bundle(std::filesystem::path path, Manifest manifest, std::string manifest_sha256)
      : path_(std::move(path)),
        manifest_(std::move(manifest)),
        manifest_sha256_(std::move(manifest_sha256)) {}

  const FileRecord& file(const std::string& name) const;
  std::vector<const FileRecord*> graph_files() const;  // backbone.onnx, backbone.onnx.data
  // Opens a recorded file. A link, a missing file or another size is a Failure.
  InputFile open_file(const FileRecord& record, const std::filesystem::path& folder) const;
  // Returns the path of a recorded file for engines that open it themselves, after the same checks.
  std::filesystem::path locate(const FileRecord& record, const std::filesystem::path& folder) const;

  std::filesystem::path path_;
  Manifest manifest_;
  std::string manifest_sha256_;
};

}  // namespace anoco
