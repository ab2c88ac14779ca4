// What the engine sees of a picture: one input, or tiles of a larger canvas (anoco_edge/canvas.py).
//
// Where tiles overlap, the cut between two runs through the middle: each patch is taken from the
// tile that has more of its surroundings.
#pragma once

#include <optional>
#include <vector>

#include "buffer_list.hpp"
#include "bundle/schema.hpp"
#include "engine/engine.hpp"

namespace anoco {

// One tile: where it lies on the canvas, and what is taken from it.
struct TilePlace {
  int64_t top, left;                               // of the window, in pixels
  int64_t first_row, end_row, first_col, end_col;  // patches of the canvas taken from it
};

// None where the window is the canvas.
std::vector<TilePlace> tile_places(const InputContract& window, const std::optional<Tiles>& tiles);

class Tiling {
 public:
  Tiling() = default;
  // Memory is taken here; one thread at a time may use it.
  Tiling(const InputContract& window, const std::optional<Tiles>& tiles);
  static int64_t bytes(const InputContract& window, const std::optional<Tiles>& tiles);

  const InputContract& input() const { return input_; }  // of the whole

  // patches() x dim floats of a picture brought to the canvas's size. Valid until the next call,
  // and until the request runs again.
  const float* features(Request& request, const uint8_t* pixels);

 private:
  // The one list of its memory, see buffer_list.hpp.
  template <class Each>
  static void each_buffer(const InputContract& window, const std::optional<Tiles>& tiles,
                          Each&& each);
  void cut(const uint8_t* pixels, const TilePlace& place);
  void keep(const float* features, const TilePlace& place);

  InputContract window_, input_;
  std::vector<TilePlace> places_;
  Buffer<uint8_t> cut_;
  Buffer<float> joined_;
};

}  // namespace anoco
