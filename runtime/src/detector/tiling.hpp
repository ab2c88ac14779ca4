// Runs the engine over a whole picture: in one run, or tile by tile where the picture is larger
// than the engine's input (anoco_edge/pipeline/tiling.py).
//
// Where two tiles overlap, the boundary between them runs through the middle of the overlap, so
// each patch is taken from the tile that contains more of its surroundings.
#pragma once

#include <optional>
#include <vector>

#include "buffer_list.hpp"
#include "bundle/schema.hpp"
#include "engine/engine.hpp"

namespace anoco {

// One tile: its position in the tiled input, and the patches that are taken from it.
struct TilePlace {
  int64_t top, left;                               // of the tile, in pixels
  int64_t first_row, end_row, first_col, end_col;  // patches that are taken from it
};

// Returns no tiles if the engine sees the whole input at once.
std::vector<TilePlace> tile_places(const InputContract& window, const std::optional<Tiles>& tiles);

class Tiling {
 public:
  Tiling() = default;
  // Takes all memory. One thread at a time may use it.
  Tiling(const InputContract& window, const std::optional<Tiles>& tiles);
  static int64_t bytes(const InputContract& window, const std::optional<Tiles>& tiles);

  const InputContract& input() const { return input_; }  // the whole, tiled input

  // Returns patches() x dim floats for a picture of the tiled input's size. They are valid until
  // the next call, and until the request runs again.
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
