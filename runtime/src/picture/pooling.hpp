// Turns the energies of a picture's patches into its score, as anoco_edge/scoring/pooling.py does.
#pragma once

#include <cstdint>

#include "bundle/schema.hpp"

namespace anoco {

// The Gaussian of `smooth`, sigma 0.8, relative to its center: exp(-1 / (2 sigma^2)) beside it, and
// the square of that at the corners.
constexpr double kSmoothSide = 0.4578333617716143;
constexpr double kSmoothCorner = kSmoothSide * kSmoothSide;

// Smooths a grid of energies with a 3x3 Gaussian over the scored patches alone: the weights of the
// scored patches of a neighborhood are scaled to a sum of one, and patches that are not scored
// become 0. `out` must not be `energy`.
void smooth_grid(const float* energy, const uint8_t* scored, int64_t rows, int64_t cols,
                 float* out);

struct Pooled {
  double score = 0;
  int64_t peak = 0;  // the first patch that has the largest energy
};

// Pools the scored energies, of which there must be one: the mean of the five largest with `top5`,
// else the largest. With `smooth` the caller passes the smoothed grid.
Pooled pool(const float* energy, const uint8_t* scored, int64_t patches, Pooling pooling);

}  // namespace anoco
