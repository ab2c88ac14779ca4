// Which patches of a picture are scored: no fill, inside the region of interest, not masked.
#pragma once

#include <optional>
#include <vector>

#include "buffer_list.hpp"
#include "bundle/bundle.hpp"
#include "picture/placement.hpp"

namespace anoco {

class PatchMask {
 public:
  PatchMask() = default;
  // `contract` is the canvas's. Memory is taken here.
  PatchMask(const InputContract& contract, std::vector<Point> region, std::optional<Mask> ignore);
  static int64_t bytes(const InputContract& contract, const std::vector<Point>& region,
                       const std::optional<Mask>& ignore);

  // rows x cols bytes, 1 where the patch counts; computed when the placement or view is another
  // than last time, so a stream of equal pictures costs nothing. Valid until the next call.
  // For the identity none at all is a Failure (ANOCO_INVALID_ARGUMENT); a view may see none.
  const uint8_t* scored(const Placement& placement, const Affine& view = kIdentity);

 private:
  // The one list of its memory, see buffer_list.hpp.
  template <class Each>
  static void each_buffer(const InputContract& contract, Each&& each);
  bool in_picture(int64_t x, int64_t y) const;
  void mark_wanted();
  void mark_region(int64_t y, uint8_t* row);
  void mark_ignored();
  void mark_patches();
  bool seen(const Affine& view, int64_t row, int64_t col) const;
  bool surely_seen(const Affine& view, int64_t row, int64_t col) const;

  InputContract contract_;
  std::vector<Point> region_;
  std::optional<Mask> ignore_;
  Placement placement_;     // of all that follows
  Buffer<uint8_t> wanted_;  // 1 for a pixel of the canvas: picture, in the region, not masked
  Buffer<uint8_t> whole_;   // 1 for a patch: all of its pixels are wanted
  Buffer<uint8_t> plain_;   // 1 for a patch: counts without a view
  Buffer<uint8_t> viewed_;  // 1 for a patch: counts in `view_`
  std::optional<Affine> view_;
  Buffer<double> across_;    // the pixels' centres, in fractions of the picture
  Buffer<uint8_t> inside_;   // of a row: in the region
  Buffer<int32_t> columns_;  // of the mask, for each column of the picture; -1 for none
};

}  // namespace anoco
