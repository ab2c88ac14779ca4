// Searches for a reference whose bound (projection.hpp) is below its similarity, for banks that lie
// within the basis, beside it, in clusters and on one line.
#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "check.h"
#include "scorer/bank.hpp"

using anoco::Bank;
using anoco::kernels;

namespace {

std::mt19937 generator(5);
float normal() { return std::normal_distribution<float>()(generator); }

using Rows = std::vector<float>;

// Around `rank` directions, with so much noise beside them; lengths from 1e-3 to 1e3.
Rows make(int64_t rows, int64_t dim, int64_t rank, float noise) {
  Rows centres(size_t(rank * dim)), out(size_t(rows * dim));
  for (float& number : centres) number = normal();
  for (int64_t j = 0; j < rows; ++j) {
    const int64_t centre = int64_t(generator() % uint32_t(rank));
    const float length = std::pow(10.0f, float(generator() % 7) - 3);
    for (int64_t c = 0; c < dim; ++c)
      out[size_t(j * dim + c)] = length * (centres[size_t(centre * dim + c)] + noise * normal());
  }
  return out;
}

std::vector<float> query_sketch(const Bank& bank, const float* query) {
  const auto& k = kernels();
  const auto& projection = bank.projection();
  std::vector<float> left(size_t(k.mr * bank.dim()));
  std::vector<float> products(size_t(k.mr * projection.products()));
  std::vector<float> sketch(static_cast<size_t>(projection.width()));
  k.pack_a(&query, 1, bank.dim(), left.data());
  projection.project(left.data(), products.data());
  const double norm = std::sqrt(k.squares(query, bank.dim()));
  projection.finish(products.data(), float(1 / norm), 1.0f, sketch.data());
  return sketch;
}

// The smallest bound minus similarity; never below zero.
double attack(const Rows& features, int64_t rows, int64_t dim, int64_t directions,
              const Rows& queries) {
  anoco_bank_options options = ANOCO_BANK_OPTIONS_INIT;
  options.features = features.data();
  options.rows = rows;
  options.dim = dim;
  options.directions = int32_t(directions);
  const Bank bank(options);
  const auto& k = kernels();
  const int64_t width = bank.projection().width();
  double closest = 1;
  for (int64_t i = 0; i < int64_t(queries.size()) / dim; ++i) {
    const float* query = queries.data() + i * dim;
    const auto sketch = query_sketch(bank, query);
    const float* row = sketch.data();
    std::vector<float> left(size_t(k.mr * width)), bounds(size_t(k.mr * k.nr));
    k.pack_a(&row, 1, width, left.data());
    const auto inverse = float(1 / std::sqrt(k.squares(query, dim)));
    for (int64_t j = 0; j < rows; ++j) {
      if (j % k.nr == 0)
        k.multiply(width, left.data(), bank.projection().sketches(j), bounds.data(), k.nr, false);
      const float s = bank.dot(query, j) * inverse * bank.inverse_norm(j);
      closest = std::min(closest, double(bounds[size_t(j % k.nr)]) - double(s));
    }
  }
  return closest;
}

}  // namespace

int main() {
  double closest = 1;
  for (const int64_t dim : {8, 33, 200, 1024})
    for (const int64_t directions :
         {int64_t{1}, std::min<int64_t>(dim / 4, 16), std::min<int64_t>(dim, 64)})
      for (const float noise : {0.0f, 1e-4f, 0.5f}) {
        const int64_t rows = 130;
        const Rows bank = make(rows, dim, std::max<int64_t>(1, directions), noise);
        Rows queries = make(6, dim, 3, 1.0f);
        // References, opposite and scaled ones: all of their length may lie within the basis.
        for (int64_t k = 0; k < 6; ++k)
          for (int64_t c = 0; c < dim; ++c)
            queries.push_back(bank[size_t(k * 20 * dim + c)] * (k % 2 == 0 ? 3.0f : -1.0f));
        const double gap = attack(bank, rows, dim, directions, queries);
        CHECK(gap >= 0);
        closest = std::min(closest, gap);
      }
  // Not so generous either that the bounds say nothing: a reference within the basis is met.
  std::printf("%s: closest bound %.1e above\n", kernels().name, closest);
  CHECK(closest < 1e-2);
  return 0;
}
