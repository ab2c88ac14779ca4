// The content of manifest.json and product.json, as anoco_edge/bundle/schema.py defines it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace anoco {

// Maps a pixel of a view to its source: x' = a x + b y + c, y' = d x + e y + f.
using Affine = std::array<double, 6>;
constexpr Affine kIdentity{1, 0, 0, 0, 1, 0};

struct FileRecord {
  std::string path;  // below the bundle's or the product's folder, never outside
  std::string sha256;
  int64_t size = 0;
};

enum class Fit { stretch, letterbox };

struct Tiles {
  int64_t width = 0, height = 0;  // of all tiles together
  std::vector<int64_t> columns, rows;
  std::optional<Fit> fit;
};

struct InputContract {
  int64_t width = 0, height = 0;
  Fit fit = Fit::stretch;
  std::array<uint8_t, 3> fill{};
  int64_t stride = 0, rows = 0, cols = 0, dim = 0;

  int64_t patches() const { return rows * cols; }
  // Returns the contract of the whole input that tiles cover. Tiles that do not cover it are
  // refused (ANOCO_BAD_BUNDLE).
  InputContract tiled(const std::optional<Tiles>& tiles) const;
};

enum class Pooling { max, top5, smooth };
constexpr const char* kPoolings[] = {"max", "top5", "smooth"};

struct Manifest {
  std::string backbone;                  // its id
  std::string precision;                 // "fp32", "fp16", "bf16" or "int8"
  Pooling image_pooling = Pooling::max;  // of new products
  bool random_weights = false;
  InputContract input;
  std::vector<FileRecord> files;
};

using Point = std::pair<double, double>;

struct Reference {
  std::string name;
  FileRecord file;
  std::string pixels;  // sha256 of the decoded RGB
  int64_t width = 0, height = 0;
  std::vector<Affine> views;
};

enum class Tta { none, rotations, references, paper };
enum class ThresholdKind { none, provisional, conformal, manual };

struct Baseline {
  FileRecord file;
  double sigmas = 0;
};

struct Product {
  std::string name;
  int64_t generation = 0;
  double lambda = 1, floor = 0.05;
  bool lambda_relative = false;  // `lambda` counts median norms of the bank
  uint32_t metric = 0;           // ANOCO_METRIC_...
  Pooling pooling = Pooling::max;
  Tta tta = Tta::none;
  bool flips = false;  // references are mirrored too
  std::vector<Affine> views;
  std::optional<Tiles> tiles;
  bool any_size = false;
  double min_area = 0;
  std::vector<Point> region;  // a polygon in fractions of the picture; empty: all of it
  std::optional<FileRecord> mask;
  ThresholdKind threshold_kind = ThresholdKind::none;
  double threshold = 0;           // 0: none
  bool calibrated = false;        // has a calibration
  bool calibration_lost = false;  // the threshold's evidence says "lost"
  std::optional<Baseline> baseline;
  bool thinned = false;  // has a coreset
  std::vector<Reference> references;
  std::optional<FileRecord> bank;
  bool bank_half = true;  // float16
  int64_t dropped_patches = 0;
  bool bf16 = false;  // the scores that the threshold rests on were computed in BF16
};

}  // namespace anoco
