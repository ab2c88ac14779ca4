// A bundle on disk, read with every check that anoco_edge/bundle/store.py makes.
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

// Patch features of the good parts, and where each patch came from; all point into `bytes`.
struct BankFile {
  Bytes bytes;
  bool half = false;
  int64_t rows = 0, dim = 0;
  const void* features = nullptr;
  const int32_t* reference = nullptr;
  const int16_t *view = nullptr, *row = nullptr, *col = nullptr;

  BankFile() = default;
  BankFile(BankFile&&) = default;  // the bytes stay where they are; a copy's would not
  BankFile& operator=(BankFile&&) = default;
};

// One byte a pixel, 1 where it is set.
struct Mask {
  int64_t width = 0, height = 0;
  std::vector<uint8_t> set;
};

// Mean and spread of the energy of good parts at every patch of the canvas.
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

// All members throw Failure: ANOCO_BAD_BUNDLE, or ANOCO_NO_PRODUCT, with a line that names the
// file.
class Bundle {
 public:
  static Bundle open(const std::string& path);

  const std::filesystem::path& path() const { return path_; }
  const Manifest& manifest() const { return manifest_; }

  std::vector<std::string> products() const;       // on disk now, sorted
  Product product(const std::string& name) const;  // as it is now
  std::string only_product() const;                // "" where there is none; several: a Failure
  std::filesystem::path product_folder(const std::string& name) const;

  BankFile bank(const Product& product) const;
  std::optional<Mask> mask(const Product& product) const;  // what is to be ignored
  std::optional<BaselineGrid> baseline(const Product& product) const;
  SelfTest selftest() const;
  // backbone.onnx: the hashes of it and of the weights beside it are checked, and that it reaches
  // nothing outside of these files.
  std::filesystem::path graph() const;
  // Graph and weights by their hashes, as Python's Bundle.graph_identity gives it.
  std::string graph_identity() const;
  // Every reference picture is there with its recorded size (missing evidence shows now).
  void check_references(const Product& product) const;

  // The content of a recorded file below `folder`, size and hash checked.
  Bytes read(const FileRecord& record, const std::filesystem::path& folder) const;
  // The bytes of product.json as they are now.
  Bytes product_text(const std::string& name) const;
  // A bundle that another process put in this one's place (export --overwrite) is a Failure
  // (ANOCO_STORAGE): what is to be written belongs to the old one.
  void check_not_replaced() const;

 private:
  Bundle(std::filesystem::path path, Manifest manifest, std::string manifest_sha256)
      : path_(std::move(path)),
        manifest_(std::move(manifest)),
        manifest_sha256_(std::move(manifest_sha256)) {}

  const FileRecord& file(const std::string& name) const;
  std::vector<const FileRecord*> graph_files() const;  // backbone.onnx, backbone.onnx.data
  // A recorded file; a link, or a missing file, or another size is a Failure.
  InputFile open_file(const FileRecord& record, const std::filesystem::path& folder) const;
  // The path of one, for engines that open it themselves; it was just checked.
  std::filesystem::path locate(const FileRecord& record, const std::filesystem::path& folder) const;

  std::filesystem::path path_;
  Manifest manifest_;
  std::string manifest_sha256_;
};

}  // namespace anoco
