#include "bundle/bundle.hpp"

#include <algorithm>
#include <system_error>

#include "bundle/directory.hpp"
#include "bundle/documents.hpp"
#include "bundle/files.hpp"
#include "bundle/onnx_graph.hpp"
#include "bundle/png.hpp"
#include "bundle/sha256.hpp"
#include "bundle/tensors.hpp"
#include "failure.hpp"

namespace anoco {
namespace {

namespace fs = std::filesystem;

const std::string kGraph = "backbone.onnx";
constexpr char kManifest[] = "manifest.json", kProducts[] = "products", kProduct[] = "product.json";

// Tells whether a file of the manifest lies beside the graph and is named after it.
bool holds_weights(const std::string& path) {
  return path.compare(0, kGraph.size() + 1, kGraph + ".") == 0 && path.find('/') == path.npos;
}

[[noreturn]] void refuse(const std::string& text) { fail(ANOCO_BAD_BUNDLE, text); }

// Runs `work`; a file that the system cannot read makes the bundle unusable.
template <class Work>
auto reading(const fs::path& path, Work&& work) {
  try {
    return work();
  } catch (const std::system_error& error) {
    if (error.code() == std::errc::no_such_file_or_directory)
      refuse(path.string() + " is missing; the bundle is incomplete: copy it again");
    refuse(path.string() + " cannot be read: " + error.code().message() +
           "; check the permissions and the disk");
  }
}

Bytes read_text(const fs::path& root, const std::string& name) {
  const fs::path path = root / name;
  return reading(path, [&] {
    return read_small_file(InputFile(Directory::open(root).open_file(name), path.string()),
                           kMostText);
  });
}

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
  const fs::path root = path, file = root / kManifest;
  std::error_code error;
  if (!fs::is_directory(root, error))
    refuse("there is no bundle at " + path + "; make one with: anoco-edge export");
  const bool has_manifest = reading(root, [&] { return Directory::open(root).exists(kManifest); });
  if (!has_manifest)
    refuse(path + " has no manifest.json, so it is not a bundle; make one with: anoco-edge export");
  const Bytes text = read_text(root, kManifest);
  Bundle bundle(root, read_manifest(view(text), file.string()), sha256_hex(view(text)));
  for (const FileRecord& record : bundle.manifest_.files) bundle.locate(record, root);
  return bundle;
}

void Bundle::check_not_replaced() const {
  const Bytes text = read_text(path_, kManifest);
  if (sha256_hex(view(text)) != manifest_sha256_)
    fail(ANOCO_STORAGE, path_.string() +
                            " was replaced by another process meanwhile; the new bundle was not "
                            "changed: do it again if it still holds");
}

// ---- files

InputFile Bundle::open_file(const FileRecord& record, const fs::path& folder) const {
  const fs::path path = folder / record.path;
  InputFile file = reading(path, [&] {
    const size_t above = path_.native().size();
    const std::string name = path.native().substr(path.native().find_first_not_of('/', above));
    return InputFile(Directory::open(path_).open_file(name), path.string());
  });
  const int64_t size = file.size();
  if (size != record.size)
    fail_damaged(path.string() + " has " + std::to_string(size) + " bytes instead of " +
                 std::to_string(record.size));
  return file;
}

fs::path Bundle::locate(const FileRecord& record, const fs::path& folder) const {
  open_file(record, folder);
  return folder / record.path;
}

Bytes Bundle::read(const FileRecord& record, const fs::path& folder) const {
  return read_hashed_file(open_file(record, folder), record.size, record.sha256);
}

const FileRecord& Bundle::file(const std::string& name) const {
  for (const FileRecord& record : manifest_.files)
    if (record.path == name) return record;
  refuse((path_ / kManifest).string() + " does not list " + name +
         "; the bundle is incomplete: export it again");
}

std::vector<const FileRecord*> Bundle::graph_files() const {
  std::vector<const FileRecord*> files{&file(kGraph)};
  for (const FileRecord& record : manifest_.files)
    if (holds_weights(record.path)) files.push_back(&record);
  return files;
}

fs::path Bundle::graph() const {
  const std::vector<const FileRecord*> files = graph_files();
  SizesByName data_files;
  for (const FileRecord* record : files) {
    check_file_hash(open_file(*record, path_), record->sha256);
    if (record != files[0]) data_files[record->path] = record->size;
  }
  check_graph(path_ / kGraph, manifest_.input, data_files);
  return path_ / kGraph;
}

std::string Bundle::graph_identity() const {
  std::string hashes;
  for (const FileRecord* record : graph_files())
    hashes += (hashes.empty() ? "" : "|") + record->sha256;
  return hashes;
}

SelfTest Bundle::selftest() const {
  const FileRecord& record = file("selftest.safetensors");
  const Bytes bytes = read(record, path_);
  return read_selftest(view(bytes), manifest_.input, (path_ / record.path).string());
}

// ---- products

fs::path Bundle::product_folder(const std::string& name) const { return path_ / kProducts / name; }

std::vector<std::string> Bundle::products() const {
  return reading(path_ / kProducts, [&] {
    std::vector<std::string> names;
    const Directory root = Directory::open(path_);
    if (!root.holds_folder(kProducts)) return names;
    const Directory folder = root.folder(kProducts);
    for (const std::string& name : folder.names())
      if (folder.holds_folder(name) && folder.exists(name + "/" + kProduct)) names.push_back(name);
    return names;
  });
}

Bytes Bundle::product_text(const std::string& name) const {
  return read_text(path_, std::string(kProducts) + "/" + name + "/" + kProduct);
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
                               (names.empty() ? "it has none yet: " + teach_hint(path_)
                                              : "it has: " + joined(names)));
  const fs::path file = product_folder(name) / kProduct;
  const Bytes text = product_text(name);
  Product product = read_product(view(text), file.string());
  if (product.name != name)
    refuse(file.string() + " belongs to product " + anoco::quoted(product.name) +
           "; copy the product's folder again, under its own name");
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
  return read_baseline(view(bytes), product.baseline->sigmas, manifest_.input.tiled(product.tiles),
                       (folder / record.path).string());
}

void Bundle::check_references(const Product& product) const {
  for (const Reference& reference : product.references)
    locate(reference.file, product_folder(product.name));
}

}  // namespace anoco
