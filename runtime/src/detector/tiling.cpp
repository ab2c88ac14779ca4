#include "detector/tiling.hpp"

#include <cstring>

namespace anoco {
namespace {

// Returns, along one axis, the first patch that is taken from each tile, and the end.
std::vector<int64_t> cuts(const std::vector<int64_t>& starts, int64_t side, int64_t length,
                          int64_t stride) {
  std::vector<int64_t> found{0};
  for (size_t k = 1; k < starts.size(); ++k)
    found.push_back((starts[k] + starts[k - 1] + side) / (2 * stride));
  found.push_back(length / stride);
  return found;
}

}  // namespace

std::vector<TilePlace> tile_places(const InputContract& window, const std::optional<Tiles>& tiles) {
  std::vector<TilePlace> places;
  if (!tiles) return places;
  const auto down = cuts(tiles->rows, window.height, tiles->height, window.stride);
  const auto across = cuts(tiles->columns, window.width, tiles->width, window.stride);
  for (size_t y = 0; y < tiles->rows.size(); ++y)
    for (size_t x = 0; x < tiles->columns.size(); ++x)
      places.push_back(
          {tiles->rows[y], tiles->columns[x], down[y], down[y + 1], across[x], across[x + 1]});
  return places;
}

template <class Each>
void Tiling::each_buffer(const InputContract& window, const std::optional<Tiles>& tiles,
                         Each&& each) {
  if (!tiles) return;
  const InputContract whole = window.tiled(tiles);
  each(&Tiling::cut_, window.width * window.height * 3);
  each(&Tiling::joined_, whole.patches() * whole.dim);
}

Tiling::Tiling(const InputContract& window, const std::optional<Tiles>& tiles)
    : window_(window), input_(window.tiled(tiles)), places_(tile_places(window, tiles)) {
  each_buffer(window, tiles, BufferAllocator{*this});
}

int64_t Tiling::bytes(const InputContract& window, const std::optional<Tiles>& tiles) {
  return count_bytes([&](auto& each) { each_buffer(window, tiles, each); });
}

const float* Tiling::features(Request& request, const uint8_t* pixels) {
  if (places_.empty()) return request.run(pixels);
  for (const TilePlace& place : places_) {
    cut(pixels, place);
    keep(request.run(cut_.data()), place);
  }
  return joined_.data();
}

void Tiling::cut(const uint8_t* pixels, const TilePlace& place) {
  const int64_t line = window_.width * 3;
  for (int64_t y = 0; y < window_.height; ++y)
    std::memcpy(cut_.data() + y * line, pixels + ((place.top + y) * input_.width + place.left) * 3,
                size_t(line));
}

void Tiling::keep(const float* features, const TilePlace& place) {
  const int64_t row = place.top / window_.stride, col = place.left / window_.stride;
  const int64_t line = (place.end_col - place.first_col) * window_.dim;
  for (int64_t y = place.first_row; y < place.end_row; ++y)
    std::memcpy(joined_.data() + (y * input_.cols + place.first_col) * window_.dim,
                features + ((y - row) * window_.cols + place.first_col - col) * window_.dim,
                size_t(line) * sizeof(float));
}

}  // namespace anoco
