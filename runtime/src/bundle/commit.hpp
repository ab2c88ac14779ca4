// Changes a product so that a kill, a full disk or a second process cannot break it, as
// anoco_edge/bundle/{disk,generations}.py do. Both sides take the same lock and write in the same
// order, so Python and C may enroll into one bundle at the same time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "bundle/bytes.hpp"
#include "bundle/directory.hpp"

namespace anoco {

// The location of a product. Its folder is reached from the bundle's directory without following
// links.
struct ProductPlace {
  std::filesystem::path bundle;
  std::string product;

  std::filesystem::path folder() const { return bundle / "products" / product; }
};

// Holds the lock of a product's folder, which it creates if needed. It waits for another holder;
// one that does not release the lock in time is a Failure (ANOCO_STORAGE). The lock belongs to the
// open file, so it is released when the process ends, however it ends.
class ProductLock {
 public:
  ProductLock(const ProductPlace& place, double seconds);

 private:
  Descriptor handle_;
};

// Returns one more than the number of any generation that is still on disk.
int64_t next_generation(const ProductPlace& place);

struct NewFile {
  std::string path;  // below the product's folder
  Bytes content;
};

struct Generation {
  int64_t number = 0;
  std::optional<int64_t> parent;  // the first generation has none
  std::string document;           // product.json with its checksum
  std::vector<NewFile> files;
};

// Writes the new files first, each of them durable, then the history, then product.json by one
// rename, which is the commit. The caller holds the lock. If something fails before the rename
// (ANOCO_STORAGE), the new files are removed again. Files that a killed process left behind, and
// that no generation names, are removed as well.
void commit(const ProductPlace& place, const Generation& generation);

}  // namespace anoco
