// Features to score, drawn in the same way in each run.
#pragma once

#include <cstddef>

#include "reference.hpp"

namespace reference {

float normal();
std::vector<float> normals(std::size_t count, float scale = 1);

// All numbers are zero.
Problem empty(int rows, int refs, int dim);
// References around a few centers, with queries near them or far away, as features of pictures are.
Problem clustered(int rows, int refs, int dim);
// Patches that are far from references which are all alike: all of these are neighbors.
Problem crowded(int rows, int refs, int dim);
// Equal patches that have 150 neighbors, which lie together in the bank.
Problem alike(int rows, int refs, int dim);

}  // namespace reference
