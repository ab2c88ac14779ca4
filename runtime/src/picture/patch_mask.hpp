// Decides which patches of a picture are scored: those that contain no fill, lie inside the region
// of interest, and are not under the ignore mask.
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
  // `contract` is that of the tiled input. Takes all memory.
  PatchMask(const InputContract& contract, std::vector<Point> region, std::optional<Mask> ignore);
  static int64_t bytes(const InputContract& contract, const std::vector<Point>& region,
                       const std::optional<Mask>& ignore);

  // Returns rows x cols bytes, 1 where the patch is scored. They are computed only when the
  // placement or the view differs from the last call, so a stream of equal pictures costs nothing.
  // Valid until the next call. If the identity view leaves no patch it is a Failure
  // (ANOCO_INVALID_ARGUMENT); other views may have none.
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
  Placement placement_;     // that the following were computed for
  Buffer<uint8_t> wanted_;  // 1 for a pixel of the picture that is in the region and not masked
  Buffer<uint8_t> whole_;   // 1 for a patch whose pixels are all wanted
  Buffer<uint8_t> plain_;   // 1 for a patch that is scored in the identity view
  Buffer<uint8_t> viewed_;  // 1 for a patch that is scored in `view_`
  std::optional<Affine> view_;
  Buffer<double> across_;    // the centers of the pixels, as fractions of the picture
  Buffer<uint8_t> inside_;   // 1 for a pixel of the current row that is in the region
  Buffer<int32_t> columns_;  // the column of the mask for each column of the picture, or -1
};

}  // namespace anoco
