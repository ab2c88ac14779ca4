// Searches for a reference whose bound (projection.hpp) is below its similarity, for banks that lie
// within the basis, beside it, in clusters and on one line; in float32 and float16, with lengths at
// the ends of what is allowed, and with numbers that vanish when they are multiplied. Rounding
// leaves most of its allowance unused, so bases that are far from orthonormal are tried as well.
// Searches for a reference within reach of an anchor (cone.hpp) that is not its neighbor, too.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "scorer/bank.hpp"
#include "tests/check.h"

using anoco::Bank;
using anoco::kernels;
using anoco::Projection;

namespace {

std::mt19937 generator(5);
float normal() { return std::normal_distribution<float>()(generator); }

using Rows = std::vector<float>;

// Draws rows around `rank` directions, with so much noise beside them, and lengths from 10^-wild to
// 10^wild.
Rows make(int64_t rows, int64_t dim, int64_t rank, float noise, int wild) {
  Rows centres(size_t(rank * dim)), out(size_t(rows * dim));
  for (float& number : centres) number = normal();
  for (int64_t j = 0; j < rows; ++j) {
    const int64_t centre = int64_t(generator() % uint32_t(rank));
    const float length = std::pow(10.0f, float(int(generator() % uint32_t(2 * wild + 1)) - wild));
    for (int64_t c = 0; c < dim; ++c)
      out[size_t(j * dim + c)] = length * (centres[size_t(centre * dim + c)] + noise * normal());
  }
  return out;
}

std::vector<float> query_sketch(const Bank& bank, const Projection& projection, int64_t level,
                                const float* query) {
  const auto& k = kernels();
  std::vector<float> left(size_t(k.mr * bank.dim()));
  std::vector<float> products(size_t(k.mr * projection.products()));
  std::vector<float> sketch(static_cast<size_t>(projection.width(level)));
  k.pack_a(&query, 1, bank.dim(), left.data());
  projection.project(level, left.data(), products.data());
  const double norm = std::sqrt(k.squares(query, bank.dim()));
  projection.sketch_query(level, products.data(), float(1 / norm), sketch.data());
  return sketch;
}

Bank make_bank(const void* features, uint32_t type, int64_t rows, int64_t dim, int64_t directions) {
  anoco_bank_options options = ANOCO_BANK_OPTIONS_INIT;
  options.features = features;
  options.type = type;
  options.rows = rows;
  options.dim = dim;
  options.directions = int32_t(directions);
  return Bank(options);
}

// Returns the smallest bound minus similarity at every level of the sketches; it must never be
// below zero.
double attack(const Bank& bank, const Projection& projection, const Rows& queries) {
  const auto& k = kernels();
  const int64_t rows = bank.rows(), dim = bank.dim();
  double closest = 1;
  for (int64_t level = 0; level < projection.levels(); ++level)
    for (int64_t i = 0; i < int64_t(queries.size()) / dim; ++i) {
      const float* query = queries.data() + i * dim;
      const int64_t width = projection.width(level);
      const auto sketch = query_sketch(bank, projection, level, query);
      const float* row = sketch.data();
      std::vector<float> left(size_t(k.mr * width)), bounds(size_t(k.mr * k.nr));
      k.pack_a(&row, 1, width, left.data());
      const auto inverse = float(1 / std::sqrt(k.squares(query, dim)));
      for (int64_t j = 0; j < rows; ++j) {
        if (j % k.nr == 0)
          k.multiply(width, left.data(), projection.sketches(j), bounds.data(), k.nr, false);
        const float s = bank.dot(query, j) * inverse * bank.inverse_norm(j);
        closest = std::min(closest, double(bounds[size_t(j % k.nr)]) - double(s));
      }
    }
  return closest;
}

// Cuts a float32 off to a float16 by its bits; small numbers become zero.
uint16_t to_half(float number) {
  uint32_t bits;
  std::memcpy(&bits, &number, sizeof bits);
  const int exponent = int(bits >> 23 & 255) - 112;
  if (exponent <= 0) return 0;
  return uint16_t((bits >> 16 & 0x8000u) | uint32_t(exponent) << 10 | (bits >> 13 & 0x3ffu));
}

// Draws arbitrary queries, and references, opposite and scaled ones, which may lie within the basis
// with all of their length.
Rows make_queries(const Rows& bank, int64_t dim, int wild) {
  Rows queries = make(6, dim, 3, 1.0f, wild);
  for (int64_t k = 0; k < 6; ++k)
    for (int64_t c = 0; c < dim; ++c)
      queries.push_back(bank[size_t(k * 20 * dim + c)] * (k % 2 == 0 ? 3.0f : -1.0f));
  return queries;
}

double attack(const void* features, uint32_t type, int64_t rows, int64_t dim, int64_t directions,
              const Rows& queries) {
  const Bank bank = make_bank(features, type, rows, dim, directions);
  return attack(bank, bank.projection(), queries);
}

// Makes axes that lean towards each other, shorter or longer than 1: |V^T V - I| is up to 0.3.
// Without the allowance such bounds are below the similarity by up to 0.05.
double attack_skewed(int64_t dim) {
  constexpr int64_t kRows = 130, kDirections = 3;
  const Rows rows = make(kRows, dim, 60, 0.01f, 0), queries = make_queries(rows, dim, 0);
  const Bank bank = make_bank(rows.data(), ANOCO_FLOAT32, kRows, dim, 0);
  Rows basis(size_t(kDirections * dim));
  for (int64_t c = 0; c < kDirections; ++c)
    for (int64_t other = 0; other < kDirections; ++other)
      basis[size_t(c * dim + other)] = (other == c ? 1.0f : 0.0f) + 0.03f * normal();
  return attack(bank, Projection(bank, kDirections, basis.data()), queries);
}

double attack_all(int64_t dim, int64_t directions, float noise) {
  constexpr int64_t kRows = 130;
  double closest = 1;
  for (const int wild : {0, 3, 8}) {
    Rows bank = make(kRows, dim, std::max<int64_t>(1, directions), noise, wild);
    // Numbers below 1e-38 have fewer digits, and products with them vanish.
    for (int64_t j = 0; j < kRows; j += 3) bank[size_t(j * dim + j % dim)] = 1e-41f;
    const Rows queries = make_queries(bank, dim, wild);
    const double gap = attack(bank.data(), ANOCO_FLOAT32, kRows, dim, directions, queries);
    CHECK(gap >= 0);
    closest = std::min(closest, gap);
  }
  Rows bank = make(kRows, dim, std::max<int64_t>(1, directions), noise, 2);
  std::vector<uint16_t> halves;
  for (const float number : bank) halves.push_back(to_half(number));
  for (int64_t j = 0; j < kRows; ++j) halves[size_t(j * dim)] |= 0x3u;  // never a row of zeros
  const Rows queries = make_queries(bank, dim, 2);
  CHECK(attack(halves.data(), ANOCO_FLOAT16, kRows, dim, directions, queries) >= 0);
  return closest;
}

// For every anchor, the similarity of the query is that of the anchor and another reference, so one
// of them is exactly at the limit. Returns how many references were within reach.
int64_t attack_cone(int64_t dim, float noise, int wild) {
  constexpr int64_t kRows = 130;
  Rows rows = make(kRows, dim, 1, noise, wild);
  for (int64_t c = 0; c < dim; ++c) rows[size_t(7 * dim + c)] = 2 * rows[size_t(11 * dim + c)];
  const Bank bank = make_bank(rows.data(), ANOCO_FLOAT32, kRows, dim, 0);
  const anoco::Cone& cone = bank.cone();
  int64_t within = 0;
  for (int64_t anchor = 0; anchor < kRows; ++anchor) {
    std::vector<float> similar;
    for (int64_t j = 0; j < kRows; ++j)
      similar.push_back(bank.dot(rows.data() + anchor * dim, j) * bank.inverse_norm(anchor) *
                        bank.inverse_norm(j));
    for (const float limit : similar) {
      const float reach = cone.reach(anchor, limit);
      for (int64_t j = 0; j < kRows; ++j) {
        CHECK(cone.angle(j) <= cone.widest(j / anoco::kBlock));
        CHECK(cone.widest(j / anoco::kBlock) <= cone.widest());
        if (!(cone.angle(j) < reach)) continue;
        CHECK(j == anchor || similar[size_t(j)] > limit);
        ++within;
      }
    }
  }
  return within;
}

}  // namespace

int main() {
  int64_t within = 0;
  for (const int64_t dim : {4, 33, 1024})
    for (const float noise : {0.0f, 1e-4f, 0.5f, 3.0f})
      for (const int wild : {0, 6}) within += attack_cone(dim, noise, wild);
  CHECK(within > 0);
  double closest = 1;
  for (const int64_t dim : {8, 33, 200, 1024})
    for (const int64_t directions :
         {int64_t{1}, std::min<int64_t>(dim / 4, 16), std::min<int64_t>(dim, 64)})
      for (const float noise : {0.0f, 1e-4f, 0.5f})
        closest = std::min(closest, attack_all(dim, directions, noise));
  double skewed = 1;
  for (int round = 0; round < 200; ++round) skewed = std::min(skewed, attack_skewed(4));
  CHECK(skewed >= 0);
  // The bounds must be tight enough to be useful: for a reference within the basis the bound is
  // met.
  std::printf("%s: closest bound %.1e above\n", kernels().name, closest);
  CHECK(closest < 1e-2);
  return 0;
}
