// Section 3 of the design in float64, written like anoco_edge/scoring/reference.py.
#pragma once

#include <vector>

namespace reference {

struct Problem {
  int rows = 0, refs = 0, dim = 0;
  std::vector<float> query, bank;  // as the kernels see them, rounded if they are float16
  double lambda = 1.0, floor = 0.05;
  int metric = 0;
};

struct Patch {
  int anchor, neighbors;
  double similarity, energy, norm;
  double margin;  // the distance of its closest decision from flipping
};

Patch solve(const Problem& problem, int row);

}  // namespace reference
