// Changing a product so that a kill, a full disk or a second process cannot break it, as
// anoco_edge/bundle/{disk,generations}.py do it. Both sides hold the same lock and write in the
// same order, so that Python and C may teach one bundle at the same time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "bundle/bytes.hpp"
#include "bundle/directory.hpp"

namespace anoco {

// Where a product is. Its folder is reached from the bundle's directory without following a link.
struct ProductPlace {
  std::filesystem::path bundle;
  std::string product;

  std::filesystem::path folder() const { return bundle / "products" / product; }
};

// Holds the lock of a product's folder, which is made if need be. Another holder is waited for;
// who does not let go in time is a Failure (ANOCO_STORAGE). The lock belongs to the open file, so
// it falls with the process, however that ends.
class ProductLock {
 public:
  ProductLock(const ProductPlace& place, double seconds);

 private:
  Descriptor handle_;
};

// One more than any generation ever written that is still there.
int64_t next_generation(const ProductPlace& place);

struct NewFile {
  std::string path;  // below the product's folder
  Bytes content;
};

struct Generation {
  int64_t number = 0;
  std::optional<int64_t> parent;  // none: the first
  std::string document;           // product.json, sealed
  std::vector<NewFile> files;
};

// New files first, each durable; then history; then product.json by one rename, which is the
// commit. The caller holds the lock. What fails before the rename (ANOCO_STORAGE) takes its new
// files away again. Files that a killed process left, and that no generation names, are removed.
void commit(const ProductPlace& place, const Generation& generation);

}  // namespace anoco
