#include "bundle/bundle.hpp"

#include <algorithm>
#include <system_error>

#include "bundle/documents.hpp"
#include "bundle/files.hpp"
#include "bundle/png.hpp"
#include "bundle/tensors.hpp"
#include "failure.hpp"

namespace anoco {
namespace {

namespace fs = std::filesystem;

const std::string kGraph = "backbone.onnx";  // also begins the name of the file with its weights

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

bool is_below(const fs::path& path, const fs::path& folder) {
  std::error_code no_path, no_folder;
  const fs::path inner = fs::canonical(path, no_path), outer = fs::canonical(folder, no_folder);
  if (no_path || no_folder) return false;
  const auto [rest, _] = std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end());
  return rest == outer.end();
}

[[noreturn]] void refuse(const std::string& text) { fail(ANOCO_BAD_BUNDLE, text); }

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

std::string teach_hint(const fs::path& bundle) {
  return "teach it with: anoco-edge enroll " + bundle.string() + " PICTURES";
}

}  // namespace

Bundle Bundle::open(const std::string& path) {
  const fs::path root = path, file = root / "manifest.json";
  std::error_code error;
  if (!is_file(file)) {
    if (fs::is_directory(root, error))
      refuse(path + " has no manifest.json, so it is not a bundle");
    refuse("there is no bundle at " + path + "; make one with: anoco-edge export");
  }
  const Bytes text = read_small_file(file, kMostText);
  Bundle bundle(root, read_manifest(view(text), file.string()));
  for (const FileRecord& record : bundle.manifest_.files) bundle.locate(record, root);
  return bundle;
}

// ---- files

fs::path Bundle::locate(const FileRecord& record, const fs::path& folder) const {
  const fs::path path = folder / record.path;
  if (!is_file(path))
    refuse(path.string() + " is missing; the bundle is incomplete: copy it again");
  if (!is_below(path, path_)) refuse(path.string() + " points outside the bundle");
  std::error_code error;
  const uintmax_t size = fs::file_size(path, error);
  if (error) refuse(path.string() + " cannot be read: " + error.message());
  if (size != static_cast<uintmax_t>(record.size))
    refuse(path.string() + " has " + std::to_string(size) + " bytes instead of " +
           std::to_string(record.size) + "; the bundle is damaged: copy or make it again");
  return path;
}

Bytes Bundle::read(const FileRecord& record, const fs::path& folder) const {
  return read_hashed_file(locate(record, folder), record.size, record.sha256);
}

const FileRecord& Bundle::file(const std::string& name) const {
  for (const FileRecord& record : manifest_.files)
    if (record.path == name) return record;
  refuse((path_ / "manifest.json").string() + " does not list " + name);
}

fs::path Bundle::graph() const {
  const fs::path graph = locate(file(kGraph), path_);
  for (const FileRecord& record : manifest_.files)
    if (record.path.compare(0, kGraph.size(), kGraph) == 0)
      check_file_hash(locate(record, path_), record.sha256);
  return graph;
}

std::string Bundle::graph_identity() const {
  std::string hashes;
  for (const FileRecord& record : manifest_.files)
    if (record.path.compare(0, kGraph.size(), kGraph) == 0)
      hashes += (hashes.empty() ? "" : "|") + record.sha256;
  return hashes;
}

SelfTest Bundle::selftest() const {
  const FileRecord& record = file("selftest.safetensors");
  const Bytes bytes = read(record, path_);
  return read_selftest(view(bytes), manifest_.input, (path_ / record.path).string());
}

// ---- products

fs::path Bundle::product_folder(const std::string& name) const { return path_ / "products" / name; }

std::vector<std::string> Bundle::products() const {
  std::vector<std::string> names;
  std::error_code error;
  const fs::path folder = path_ / "products";
  if (!fs::is_directory(folder, error)) return names;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error))
    if (is_file(entry->path() / "product.json")) names.push_back(entry->path().filename().string());
  if (error) refuse(folder.string() + " cannot be read: " + error.message());
  std::sort(names.begin(), names.end());
  return names;
}

std::string Bundle::only_product() const {
  const std::vector<std::string> names = products();
  if (names.size() > 1)
    fail(ANOCO_NO_PRODUCT,
         path_.string() + " has several products: " + joined(names) + "; say which");
  return names.empty() ? "" : names[0];
}

Product Bundle::product(const std::string& name) const {
  const std::vector<std::string> names = products();
  if (std::find(names.begin(), names.end(), name) == names.end())
    fail(ANOCO_NO_PRODUCT, path_.string() + " has no product " + anoco::quoted(name) + "; " +
                               (names.empty() ? "it has none yet" : "it has: " + joined(names)));
  const fs::path file = product_folder(name) / "product.json";
  const Bytes text = read_small_file(file, kMostText);
  Product product = read_product(view(text), file.string());
  if (product.name != name)
    refuse(file.string() + " belongs to product " + anoco::quoted(product.name));
  return product;
}

BankFile Bundle::bank(const Product& product) const {
  if (!product.bank)
    fail(ANOCO_NO_PRODUCT,
         "product " + anoco::quoted(product.name) + " has no references; " + teach_hint(path_));
  const fs::path folder = product_folder(product.name);
  const std::string file = (folder / product.bank->path).string();
  BankFile bank = read_bank(read(*product.bank, folder), file);
  check_bank(bank, product, manifest_.input, file);
  return bank;
}

std::optional<Mask> Bundle::mask(const Product& product) const {
  if (!product.mask) return std::nullopt;
  const fs::path folder = product_folder(product.name);
  const Bytes bytes = read(*product.mask, folder);
  return decode_mask(view(bytes), (folder / product.mask->path).string());
}

std::optional<BaselineGrid> Bundle::baseline(const Product& product) const {
  if (!product.baseline) return std::nullopt;
  const fs::path folder = product_folder(product.name);
  const FileRecord& record = product.baseline->file;
  const Bytes bytes = read(record, folder);
  return read_baseline(view(bytes), product.baseline->sigmas, manifest_.input.canvas(product.tiles),
                       (folder / record.path).string());
}

void Bundle::check_references(const Product& product) const {
  for (const Reference& reference : product.references)
    locate(reference.file, product_folder(product.name));
}

}  // namespace anoco
