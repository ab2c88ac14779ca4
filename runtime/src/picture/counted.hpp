// Which patches of a picture are scored: no fill, inside the region of interest, not masked.
#pragma once

#include <optional>
#include <vector>

#include "bundle/bundle.hpp"
#include "picture/placement.hpp"

namespace anoco {

class Counter {
 public:
  // `contract` is the canvas's. Memory is taken here.
  Counter(const InputContract& contract, std::vector<Point> region, std::optional<Mask> ignore);
  static int64_t bytes(const InputContract& contract);

  // rows x cols bytes, 1 where the patch counts; computed when the placement or view is another
  // than last time, so a stream of equal pictures costs nothing. Valid until the next call.
  // For the identity none at all is a Failure (ANOCO_INVALID_ARGUMENT); a view may see none.
  const uint8_t* counted(const Placement& placement, const Affine& view = kIdentity);
};

}  // namespace anoco
