// Compares the scoring kernels, launched one after the other as the host does, with the method in
// float64. Every case runs in two orders of threads, which must give the same bits.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string>

#include "agreement.hpp"
#include "run.hpp"
#include "scoring_kernels.hpp"
#include "scoring_problems.hpp"

namespace {

using reference::alike;
using reference::clustered;
using reference::compare;
using reference::crowded;
using reference::empty;
using reference::normal;
using reference::normals;
using reference::Patch;
using reference::Problem;
using simt::emulate;
using simt::Factors;
using simt::halves_of;
using simt::Result;
using simt::round_to_half;
using simt::run_each;
using simt::run_rows;
using simt::scores_of;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

void agree(const char* name, Problem p, double most_undecided = 0.05,
           const simt::ManyFactors& all = simt::kDefaultFactors) {
  for (const Factors factors : all) {
    const bool half = factors == Factors::half;
    if (half) {
      round_to_half(p.query);
      round_to_half(p.bank);
    }
    simt::run_threads(simt::Order::forward);
    const Result got = emulate(p, factors, false);
    compare(name, p, got, most_undecided);
    simt::run_threads(half ? simt::Order::backward : simt::Order::shuffled);
    CHECK(emulate(p, factors, false).same_bits(got));
    if (p.refs < 300) compare(name, p, emulate(p, factors, true), most_undecided);
  }
}

void sizes() {
  const int shapes[][3] = {{1, 1, 1},     {1, 1, 7},     {1, 2, 3},     {3, 2, 5},    {2, 255, 31},
                           {2, 256, 256}, {2, 257, 257}, {3, 1024, 9},  {3, 1025, 2}, {2, 40, 1023},
                           {2, 40, 1025}, {1, 30, 2050}, {64, 576, 128}};
  for (const auto& shape : shapes)
    agree("sizes", clustered(shape[0], shape[1], shape[2]), shape[2] < 10 ? 1 : 0.05,
          simt::kAllFactors);
}

void metrics() {
  for (const int metric : {0, 1, 2})
    for (const double lambda : {1e-3, 30.0})
      for (const double floor : {0.0, 0.5}) {
        Problem p = clustered(6, 90, 40);
        p.metric = metric;
        p.lambda = lambda;
        p.floor = floor;
        agree("metrics", p);
      }
}

// As many as are listed, or more.
void all_neighbors(int rows, int refs, int dim) {
  const Problem p = crowded(rows, refs, dim);
  agree("all neighbors", p, rows == 1 ? 0 : 0.05);
  CHECK(reference::solve(p, 0).neighbors == refs);
  CHECK(emulate(p, Factors::plain, true).dense == (refs > ANOCO_GPU_LISTED ? rows : 0));
}

// Very many neighbors, but not the whole bank.
void most_neighbors(int refs, int dim) {
  Problem p = empty(1, refs, dim);
  const auto base = normals(size_t(dim));
  for (size_t i = 0; i < p.bank.size(); ++i) {
    const float side = i / size_t(dim) % 6 == 1 ? -1.0f : 1.0f;
    p.bank[i] = side * base[i % size_t(dim)] + 0.05f * normal();
  }
  for (size_t i = 0; i < p.query.size(); ++i) p.query[i] = 0.3f * base[i] + 0.1f * normal();
  agree("most neighbors", p, 0);
  CHECK(reference::solve(p, 0).neighbors == refs - (refs + 4) / 6);
}

// Dense rows among others: the list of them has gaps, and more than a tile of rows.
void some_dense_rows() {
  Problem p = empty(90, 140, 20);
  const auto base = normals(20);
  for (size_t i = 0; i < p.bank.size(); ++i) p.bank[i] = base[i % 20] + 0.05f * normal();
  for (size_t i = 0; i < p.query.size(); ++i)
    p.query[i] = i / 20 % 5 == 2 ? p.bank[i] + 0.01f * normal() : 0.3f * base[i % 20] + normal();
  agree("some dense rows", p, 0.1);
  const int dense = emulate(p, Factors::plain, false).dense;
  CHECK(dense > ANOCO_GPU_TILE_ROWS && dense < 80);
}

void opposed() {
  Problem p = clustered(4, 50, 16);
  for (size_t i = 0; i < p.query.size(); ++i) p.query[i] = -p.bank[i];
  agree("opposed", p, 1);
  for (float& x : p.bank) x = std::abs(x) + 0.1f;  // nothing but negative similarities
  for (float& x : p.query) x = -std::abs(x) - 0.1f;
  for (const double floor : {0.0, 0.05}) {
    p.floor = floor;
    agree("negative", p, 1);
  }
}

// Whole numbers make products exact and ties real: the lowest index wins, references that tie with
// the first violator are left out, and copies change nothing but counts.
void ties() {
  Problem p = empty(3, 8, 2);
  p.bank = {4, 3, 3, 4, 4, 3, 3, 4, -3, 4, 4, -3, 0, 5, 5, 0};
  p.query = {4, 3, 5, 0, 0, 2};
  for (const Factors factors : simt::kAllFactors) {
    const bool gram = factors != Factors::plain;
    const Result got = emulate(p, factors, gram);
    const int anchors[] = {0, 7, 6}, neighbors[] = {1, 1, 1};
    for (size_t i = 0; i < 3; ++i) CHECK(got.anchor[i] == anchors[i]);
    for (size_t i = 0; i < 3; ++i) CHECK(got.neighbors[i] == neighbors[i]);
    for (size_t i = 0; i < 3; ++i) CHECK(got.best[i] == 1);
    CHECK(got.energy[0] == 0 && got.energy[1] == 0);
    // (0, 2) has its anchor's direction at another length; E of product is 0, drift is not.
    p.metric = 1;
    CHECK(got.energy[2] <= 1e-12f && emulate(p, factors, gram).energy[2] > 1);
    p.metric = 0;
  }
  // -0 is as large as 0.
  Problem zero = empty(1, 4, 1);
  const Result got = scores_of(zero, {-1, -0.0f, 0, -0.0f}, std::vector<float>(16));
  CHECK(got.anchor[0] == 1 && got.best[0] == 0 && got.neighbors[0] == 1);
}

// The references that tie with the first violator are left out, before and after it in the order of
// indices, consistent or not.
void tied_violators() {
  Problem p = empty(1, 6, 1);
  p.metric = 1;
  p.query = {1};
  p.bank = {1, 2, 3, 4, 5, 6};
  for (const int violator : {1, 2, 3}) {
    std::vector<float> gram(36, 0.0f);
    for (const size_t j : {1, 2, 3}) gram[j] = int(j) == violator ? 10.0f : 11.0f;
    gram[4] = 12;
    const Result got = scores_of(p, {10, 5, 5, 5, 9, 1}, gram);
    CHECK(got.anchor[0] == 0 && got.best[0] == 10);
    CHECK(got.neighbors[0] == 2);  // the anchor, and the reference with 9
    CHECK(std::abs(got.energy[0] - std::pow(9 * 4.0 / 20, 2)) < 1e-5);
  }
}

// The same with more neighbors than are listed: 300 above the violators, and as many that tie.
void tied_violators_of_a_dense_row() {
  constexpr size_t kRefs = 901;
  Problem p = empty(1, int(kRefs), 1);
  p.metric = 1;
  p.query = {1};
  std::vector<float> products(kRefs), gram(kRefs * kRefs, 0.0f);
  double pull = 0, d = 0;
  for (size_t j = 0; j < kRefs; ++j) {
    p.bank[j] = float(j % 7);
    products[j] = j == 900 ? 10.0f : j % 3 == 0 ? 9.0f : j % 3 == 1 ? 5.0f : 1.0f;
    gram[900 * kRefs + j] = j == 601 ? 10.0f : 11.0f;  // the only violator: its s is 5
    if (products[j] <= 5) continue;
    d += products[j];
    pull += products[j] * (double(p.bank[j]) - 1);
  }
  const Result got = scores_of(p, products, gram);
  CHECK(got.dense == 1 && got.anchor[0] == 900 && got.neighbors[0] == 301);
  const double energy = std::pow(pull / (1 + d), 2);
  CHECK(std::abs(got.energy[0] - energy) < 1e-5 * energy);
}

// Each tile of references has one violator, and each a larger one than the tile before; one
// neighbor is far from the others.
void rising_violators_of_a_dense_row() {
  constexpr size_t kRefs = 29 * ANOCO_GPU_TILE_COLUMNS, kAlone = 500;
  Problem p = empty(1, int(kRefs), 1);
  p.metric = 1;
  p.query = {1};
  std::vector<float> products(kRefs, 0.5f), gram(kRefs * kRefs, 11.0f);
  double pull = 0, d = 0;
  for (size_t j = 0; j < kRefs; ++j) {
    const bool near = j < 224 || j == kAlone;
    p.bank[j] = j == kAlone ? 50.0f : float(j % 7);
    if (near) products[j] = j == 0 ? 10.0f : 9.0f;
    if (!near && j % ANOCO_GPU_TILE_COLUMNS == 7) {
      products[j] = 1 + float(j) / 1000;
      gram[j] = 10;
    }
    if (!near) continue;
    d += products[j];
    pull += products[j] * (double(p.bank[j]) - 1);
  }
  const Result got = scores_of(p, products, gram);
  CHECK(got.dense == 1 && got.anchor[0] == 0 && got.neighbors[0] == 225);
  const double energy = std::pow(pull / (1 + d), 2);
  CHECK(std::abs(got.energy[0] - energy) < 1e-5 * energy);
}

// As many references as are listed, many as similar as others, are all consistent: none is lost.
void equal_similarities() {
  for (const int apart : {1, 8})
    for (const int refs : {1, 2, 63, 100, int(ANOCO_GPU_LISTED)}) {
      Problem p = empty(1, refs, 1);
      p.query = {1};
      std::vector<float> products(size_t(refs), 0.5f);
      for (size_t j = 0; j < products.size(); j += size_t(apart)) products[j] = 1;
      const Result got =
          scores_of(p, products, std::vector<float>(size_t(refs) * size_t(refs), 3.0f));
      CHECK(got.dense == 0 && got.anchor[0] == 0 && got.neighbors[0] == refs);
    }
}

void copies() {
  Problem p = clustered(5, 2 * ANOCO_GPU_BLOCK, 32);  // the same thread handles both copies
  std::copy_n(p.bank.begin(), p.bank.size() / 2,
              p.bank.begin() + std::ptrdiff_t(p.bank.size() / 2));
  std::copy_n(p.bank.begin(), p.query.size(), p.query.begin());  // the queries are enrolled patches
  for (const Factors factors : {Factors::plain, Factors::parts})
    for (const bool gram : {false, true}) {
      const Result got = emulate(p, factors, gram);
      for (int i = 0; i < p.rows; ++i) {
        CHECK(got.anchor[size_t(i)] == i);
        CHECK(got.energy[size_t(i)] <= 1e-9 * p.dim);
        if (!gram) CHECK(got.neighbors[size_t(i)] == 1);  // a = s*, to the last bit
      }
    }
}

void extreme_norms() {
  for (const float q_scale : {1.5e-10f, 0.9e10f})
    for (const float r_scale : {1.5e-10f, 0.9e10f}) {
      Problem p = clustered(4, 70, 20);
      const auto scale = [&](std::vector<float>& rows, float to) {
        for (size_t i = 0; i < rows.size(); i += 20) {
          double squares = 0;
          for (size_t k = 0; k < 20; ++k) squares += double(rows[i + k]) * double(rows[i + k]);
          for (size_t k = 0; k < 20; ++k)
            rows[i + k] = float(rows[i + k] * (double(to) / std::sqrt(squares)));
        }
      };
      scale(p.query, q_scale);
      scale(p.bank, r_scale);
      for (const double lambda : {1e-24, 1.0, 1e24}) {
        p.lambda = lambda;
        for (const Factors factors : {Factors::plain, Factors::parts})
          for (const bool gram : {false, true}) {
            const Result got = emulate(p, factors, gram);
            compare("norms", p, got, 0.5);
            for (const float e : got.energy) CHECK(std::isfinite(e));
          }
      }
    }
}

void bad_rows() {
  const float broken[] = {NAN, kInfinity, -kInfinity, 3e38f, 1.1e10f};
  for (const int dim : {1, 300})
    for (const float number : broken) {
      std::vector<float> x(size_t(6 * dim), 1.0f), norms(6);
      x[size_t(3 * dim) + size_t(dim) - 1] = number;
      x[size_t(5 * dim)] = number;
      int bad = ANOCO_GPU_NO_BAD_ROW;
      run_rows("anoco_norms_f32", 6, (const float*)x.data(), 6, dim, norms.data(), &bad);
      CHECK(bad == 3);
    }
  for (const float tiny : {0.0f, 1e-30f, 0.9e-10f}) {
    std::vector<float> x{1, tiny}, norms(2);
    int bad = ANOCO_GPU_NO_BAD_ROW;
    run_rows("anoco_norms_f32", 2, (const float*)x.data(), 2, 1, norms.data(), &bad);
    CHECK(bad == 1);
  }
  const std::vector<float> fine{1e-10f, 1e10f, -1e-10f};
  std::vector<float> norms(3);
  int bad = ANOCO_GPU_NO_BAD_ROW;
  run_rows("anoco_norms_f32", 3, fine.data(), 3, 1, norms.data(), &bad);
  CHECK(bad == ANOCO_GPU_NO_BAD_ROW && norms[0] == 1e-10f && norms[1] == 1e10f);
  const std::vector<uint16_t> halves{0x3c00, 0x7c00, 0x7e00, 0x0001};
  norms.resize(4);
  run_rows("anoco_norms_f16", 4, halves.data(), 4, 1, norms.data(), &bad);
  CHECK(bad == 1 && norms[0] == 1 && norms[3] == std::ldexp(1.0f, -24));
}

// Rows of NaN products, which no valid input gives, have an existing reference and a NaN energy.
void broken_products() {
  Problem p = clustered(2, 300, 5);
  const Result got = scores_of(p, std::vector<float>(600, NAN), {});
  for (const size_t i : {0, 1})
    CHECK(got.anchor[i] == 0 && std::isnan(got.best[i]) && std::isnan(got.energy[i]));
}

// Thousands of terms that nearly cancel, after half of them have added up.
void cancelling_sums() {
  constexpr int kRefs = 5000, kDim = 3;
  Problem p = empty(1, kRefs, kDim);
  p.metric = 1;
  for (size_t i = 0; i < p.bank.size(); ++i)
    p.bank[i] = (i < p.bank.size() / 2 ? 1.0f : -1.0f) + 1e-3f * normal();
  p.query = {1e-3f, 0.0f, -2e-3f};
  // All are as similar, and consistent: a = 3 > s* = 1.
  const Result got =
      scores_of(p, std::vector<float>(kRefs, 1.0f), std::vector<float>(kRefs * kRefs, 3.0f));
  CHECK(got.dense == 1 && got.neighbors[0] == kRefs);
  double squares = 0;
  for (size_t k = 0; k < kDim; ++k) {
    double pull = 0;
    for (size_t j = 0; j < kRefs; ++j) pull += double(p.bank[j * kDim + k]) - double(p.query[k]);
    squares += std::pow(pull / (kRefs + 1), 2);
  }
  CHECK(std::abs(std::sqrt(got.energy[0]) - std::sqrt(squares)) <= 3e-8);
}

// An f~ of length zero has no direction, and its cosine is 0.
void energies() {
  Problem p = empty(1, 1, 2);
  p.query = {3, 4};
  p.bank = {-3, -4};
  p.floor = 0.2;  // so that its weight is 1, as lambda is
  const float expected[] = {25, 25, 1};
  for (const int metric : {0, 1, 2}) {
    p.metric = metric;
    for (const Factors factors : {Factors::plain, Factors::parts})
      CHECK(emulate(p, factors, false).energy[0] == expected[metric]);
  }
}

void moving_rows() {
  for (const int dim : {1, 255, 700}) {
    const auto from = normals(size_t(4 * dim));
    const std::vector<int> index{3, -1, 0, 3, 2};
    std::vector<float> out(size_t(5 * dim), 9.0f);
    run_rows("anoco_gather_f32", 5, from.data(), index.data(), 5, dim, out.data());
    const auto halves = halves_of(from);
    std::vector<uint16_t> half_out(out.size(), 9);
    run_rows("anoco_gather_f16", 5, halves.data(), index.data(), 5, dim, half_out.data());
    for (size_t i = 0; i < out.size(); ++i) {
      const int row = index[i / size_t(dim)];
      const size_t source = size_t(std::max(row, 0)) * size_t(dim) + i % size_t(dim);
      CHECK(out[i] == (row < 0 ? 9.0f : from[source]));
      CHECK(half_out[i] == (row < 0 ? 9 : halves[source]));
    }
  }
  std::vector<int> index(300, -1), places(300), from{5, 6};
  const std::vector<float> numbers{0.5f, 0.25f};
  index[299] = 1;
  index[7] = 0;
  std::vector<float> out(300);
  run_each("anoco_scatter_i32", 300, (const int*)from.data(), (const int*)index.data(), 300, -1,
           places.data());
  run_each("anoco_scatter_f32", 300, numbers.data(), (const int*)index.data(), 300, 0.0f,
           out.data());
  for (size_t i = 0; i < 300; ++i) {
    CHECK(places[i] == (i == 299 ? 6 : i == 7 ? 5 : -1));
    CHECK(out[i] == (i == 299 ? 0.25f : i == 7 ? 0.5f : 0.0f));
  }
}

void halves() {
  std::vector<uint16_t> all(65536), back(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = uint16_t(i);
  std::vector<float> wide(65536);
  run_each("anoco_to_float", 65536, (const uint16_t*)all.data(), 65536LL, wide.data());
  run_each("anoco_to_half", 65536, (const float*)wide.data(), 65536LL, back.data());
  for (size_t i = 0; i < all.size(); ++i) {
    const int exponent = all[i] >> 10 & 31, fraction = all[i] & 1023;
    if (exponent == 31 && fraction != 0) {
      CHECK(std::isnan(wide[i]));
      continue;
    }
    CHECK(back[i] == all[i]);
    if (exponent == 0) CHECK(std::abs(wide[i]) == std::ldexp(float(fraction), -24));
  }
  const std::vector<float> between{1 + 1 / 2048.0f, 1 + 3 / 2048.0f, 65519.9f, 65520.0f};
  std::vector<uint16_t> rounded(4);
  run_each("anoco_to_half", 4, between.data(), 4LL, rounded.data());
  CHECK(rounded[0] == 0x3c00 && rounded[1] == 0x3c02);
  CHECK(rounded[2] == 0x7bff && rounded[3] == 0x7c00);
}

// One picture, so that what its kernels do can be counted (ANOCO_PTX_COUNTERS). Patches of a usual
// one are near one reference each, and have a handful of neighbors.
int run_picture(const std::string& kind) {
  Problem p = kind == "crowded" ? crowded(64, 576, 128)
              : kind == "alike" ? alike(64, 576, 128)
                                : clustered(64, 576, 128);
  if (kind == "usual")
    for (size_t i = 0; i < p.query.size(); ++i) p.query[i] = p.bank[i] + 0.41f * normal();
  int neighbors = 0;
  for (const int count : emulate(p, Factors::half, false).neighbors) neighbors += count;
  std::printf("%d neighbors\n", neighbors);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) return run_picture(argv[1]);
  halves();
  moving_rows();
  bad_rows();
  broken_products();
  energies();
  ties();
  equal_similarities();
  tied_violators();
  tied_violators_of_a_dense_row();
  rising_violators_of_a_dense_row();
  copies();
  opposed();
  metrics();
  extreme_norms();
  cancelling_sums();
  for (const int refs : {31, 64, 65, 128, 129, 700}) all_neighbors(1, refs, 24);
  all_neighbors(1, 150, 1030);
  all_neighbors(1, 90, 1030);
  for (const int refs : {100, 1500}) most_neighbors(refs, 24);
  some_dense_rows();
  agree("alike", alike(3, 300, 33), 0);
  sizes();
  return 0;
}
