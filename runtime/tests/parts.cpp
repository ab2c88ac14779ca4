// The parts below the C interface as C functions, for tests/native/test_native_parts.py.
#include <cstring>
#include <optional>
#include <vector>

#include "api/boundary.hpp"
#include "picture/anomaly_map.hpp"
#include "picture/augmentation.hpp"
#include "picture/patch_mask.hpp"
#include "picture/placement.hpp"
#include "picture/pooling.hpp"
#include "picture/prepare.hpp"
#include "picture/regions.hpp"

namespace {

using namespace anoco;

// An input contract as the tests pass it.
struct PartsContract {
  int64_t width, height, letterbox, stride;
  uint8_t fill[4];
};

InputContract contract_of(const PartsContract& given) {
  InputContract contract;
  contract.width = given.width;
  contract.height = given.height;
  contract.fit = given.letterbox != 0 ? Fit::letterbox : Fit::stretch;
  contract.fill = {given.fill[0], given.fill[1], given.fill[2]};
  contract.stride = given.stride;
  contract.rows = given.height / given.stride;
  contract.cols = given.width / given.stride;
  contract.dim = 1;
  return contract;
}

Affine affine_of(const double* view) {
  return {view[0], view[1], view[2], view[3], view[4], view[5]};
}

std::vector<Point> polygon_of(const double* points, int64_t count) {
  std::vector<Point> polygon;
  for (int64_t i = 0; i < count; ++i) polygon.emplace_back(points[2 * i], points[2 * i + 1]);
  return polygon;
}

void write(const Box& box, double* out) {
  const double values[] = {box.x0, box.y0, box.x1, box.y1};
  std::memcpy(out, values, sizeof values);
}

}  // namespace

extern "C" {

ANOCO_API void parts_place(const PartsContract* contract, int64_t width, int64_t height,
                           int64_t* out) {
  const Placement p = place(contract_of(*contract), width, height);
  const int64_t values[] = {p.picture_width, p.picture_height, p.left, p.top, p.width, p.height};
  std::memcpy(out, values, sizeof values);
}

ANOCO_API void parts_to_picture(const PartsContract* contract, int64_t width, int64_t height,
                                const double* box, double* out, double* area_scale) {
  const Placement p = place(contract_of(*contract), width, height);
  write(p.to_picture({box[0], box[1], box[2], box[3]}), out);
  *area_scale = p.area_scale();
}

ANOCO_API void parts_patch_box(const PartsContract* contract, int64_t row, int64_t col,
                               double* out) {
  write(patch_box(contract_of(*contract), row, col), out);
}

ANOCO_API anoco_status parts_to_rgb(const anoco_image* image, uint8_t* out) {
  return guarded([&] { to_rgb(checked_image(image), out); });
}

// Prepares the pictures one after the other with one preparer, as a context does.
ANOCO_API anoco_status parts_prepare(const PartsContract* contract, int64_t max_width,
                                     int64_t max_height, const anoco_image* const* images,
                                     int64_t count, uint8_t* const* out, uint8_t* fits) {
  return guarded([&] {
    Preparer preparer(contract_of(*contract), max_width, max_height);
    for (int64_t i = 0; i < count; ++i) {
      const anoco_image image = checked_image(images[i]);
      fits[i] = preparer.fits(image.width, image.height) ? 1 : 0;
      if (fits[i] != 0) preparer.prepare(image, out[i]);
    }
  });
}

ANOCO_API anoco_status parts_enlarge(const PartsContract* contract, int64_t width, int64_t height,
                                     const float* map, float* out) {
  return guarded([&] {
    const InputContract input = contract_of(*contract);
    Preparer(input, width, height).enlarge(map, place(input, width, height), out);
  });
}

// Computes the mask of every picture and view in turn with one object.
ANOCO_API anoco_status parts_scored(const PartsContract* contract, const double* points,
                                    int64_t point_count, const uint8_t* ignore,
                                    int64_t ignore_width, int64_t ignore_height,
                                    const int64_t* sizes, const double* views, int64_t count,
                                    uint8_t* out) {
  return guarded([&] {
    std::optional<Mask> mask;
    if (ignore != nullptr)
      mask = Mask{ignore_width, ignore_height, {ignore, ignore + ignore_width * ignore_height}};
    const InputContract input = contract_of(*contract);
    PatchMask patch_mask(input, polygon_of(points, point_count), mask);
    for (int64_t i = 0; i < count; ++i) {
      const Placement placement = place(input, sizes[2 * i], sizes[2 * i + 1]);
      const uint8_t* scored = patch_mask.scored(placement, affine_of(views + 6 * i));
      std::memcpy(out + i * input.patches(), scored, size_t(input.patches()));
    }
  });
}

ANOCO_API anoco_status parts_regions(const PartsContract* contract, int64_t width, int64_t height,
                                     const float* energy, const float* compared, const float* map,
                                     double threshold, double min_area, double* out, int64_t* count,
                                     uint8_t* outline) {
  return guarded([&] {
    const InputContract input = contract_of(*contract);
    RegionFinder finder(input);
    finder.find({energy, compared, map}, threshold, place(input, width, height), min_area, outline);
    *count = finder.count();
    for (int64_t i = 0; i < finder.count(); ++i, out += 8) {
      const Region& region = finder[i];
      write(region.box, out);
      const double rest[] = {region.area, region.peak, double(region.row), double(region.col)};
      std::memcpy(out + 4, rest, sizeof rest);
    }
  });
}

ANOCO_API void parts_smooth(const float* energy, const uint8_t* scored, int64_t rows, int64_t cols,
                            float* out) {
  smooth_grid(energy, scored, rows, cols, out);
}

ANOCO_API void parts_warp(const uint8_t* rgb, int64_t width, int64_t height, const double* view,
                          const uint8_t* fill, uint8_t* out) {
  warp(rgb, width, height, affine_of(view), {fill[0], fill[1], fill[2]}, out);
}

ANOCO_API void parts_box_in_source(const double* view, const double* box, double* out) {
  write(box_in_source(affine_of(view), {box[0], box[1], box[2], box[3]}), out);
}

ANOCO_API anoco_status parts_average(const PartsContract* contract, const double* views,
                                     const float* energies, const uint8_t* scored, int64_t count,
                                     const uint8_t* wanted, float* out) {
  return guarded([&] {
    const InputContract input = contract_of(*contract);
    ViewAverage average(input);
    for (int round = 0; round < 2; ++round) {  // the second must not depend on the first
      average.start();
      for (int64_t i = 0; i < count; ++i)
        average.add(affine_of(views + 6 * i), energies + i * input.patches(),
                    scored + i * input.patches());
    }
    average.finish(wanted, out);
  });
}

}  // extern "C"
