// From the grid of energies to the anomaly map: bilinear, then Gaussian 7x7, as anoco_edge/maps.py.
#pragma once

#include "buffer.hpp"
#include "bundle/schema.hpp"

namespace anoco {

class MapMaker {
 public:
  MapMaker(int64_t rows, int64_t cols, int64_t stride);
  static int64_t bytes(int64_t rows, int64_t cols, int64_t stride);

  // rows * stride x cols * stride floats; zero on patches that do not count.
  void make(const float* energy, const uint8_t* counted, float* out);
};

}  // namespace anoco
