// Compares the scoring kernels, launched one after the other as the host does, with the method in
// float64. Every case runs in two orders of threads, which must give the same bits.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <random>

#include "reference.hpp"
#include "run.hpp"

namespace {

using reference::Patch;
using reference::Problem;
using simt::run_each;
using simt::run_rows;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr double kUndecided = 2e-6;  // DESIGN section 3: below it rows may decide otherwise

std::mt19937 generator(7);

float normal() { return std::normal_distribution<float>()(generator); }

std::vector<float> normals(size_t count, float scale = 1) {
  std::vector<float> out(count);
  for (float& x : out) x = scale * normal();
  return out;
}

Problem empty(int rows, int refs, int dim) {
  Problem p;
  p.rows = rows;
  p.refs = refs;
  p.dim = dim;
  p.query.resize(size_t(rows) * size_t(dim));
  p.bank.resize(size_t(refs) * size_t(dim));
  return p;
}

// References around a few centers, with queries near them or far away, as features of pictures are.
Problem clustered(int rows, int refs, int dim) {
  Problem p = empty(rows, refs, dim);
  constexpr int kCentres = 5;
  const auto centres = normals(size_t(kCentres) * size_t(dim));
  const auto near = [&](std::vector<float>& out, float spread) {
    for (size_t i = 0; i < out.size(); i += size_t(dim)) {
      const size_t centre = generator() % kCentres * size_t(dim);
      for (size_t k = 0; k < size_t(dim); ++k) out[i + k] = centres[centre + k] + spread * normal();
    }
  };
  near(p.bank, 0.3f);
  near(p.query, 0.5f);
  return p;
}

std::vector<uint16_t> halves_of(const std::vector<float>& numbers) {
  std::vector<uint16_t> out(numbers.size());
  run_each("anoco_to_half", int64_t(numbers.size()), numbers.data(), (long long)numbers.size(),
           out.data());
  return out;
}

void round_to_half(std::vector<float>& numbers) {
  const auto halves = halves_of(numbers);
  run_each("anoco_to_float", int64_t(halves.size()), halves.data(), (long long)halves.size(),
           numbers.data());
}

// Approximates the result of the GEMM, which adds in float32 in many parallel sums.
std::vector<float> products_of(const std::vector<float>& a, const std::vector<float>& b, int dim) {
  std::vector<float> out;
  for (size_t i = 0; i < a.size(); i += size_t(dim))
    for (size_t j = 0; j < b.size(); j += size_t(dim)) {
      double sum = 0;
      for (size_t k = 0; k < size_t(dim); ++k) sum += double(a[i + k]) * double(b[j + k]);
      out.push_back(float(sum));
    }
  return out;
}

struct Result {
  std::vector<float> q_norm, r_norm, best, limit, drift, moved, energy;
  std::vector<int> anchor, neighbors;

  explicit Result(const Problem& p)
      : q_norm(size_t(p.rows)),
        r_norm(size_t(p.refs)),
        best(q_norm),
        limit(q_norm),
        drift(p.query.size()),
        moved(drift),
        energy(q_norm),
        anchor(size_t(p.rows)),
        neighbors(anchor) {}

  bool same_bits(const Result& other) const {
    const auto same = [](const auto& a, const auto& b) {
      return std::memcmp(a.data(), b.data(), a.size() * sizeof a[0]) == 0;
    };
    return same(limit, other.limit) && same(drift, other.drift) && same(moved, other.moved) &&
           same(energy, other.energy) && same(anchor, other.anchor) &&
           same(neighbors, other.neighbors);
  }
};

template <class Number>
Result emulate(const Problem& p, const Number* query, const Number* bank, bool gram) {
  const bool half = sizeof(Number) == 2;
  const auto name = [&](const char* full, const char* short_) { return half ? short_ : full; };
  Result out(p);
  int bad = ANOCO_GPU_NO_BAD_ROW;
  run_rows(name("anoco_norms_f32", "anoco_norms_f16"), p.rows, query, p.rows, p.dim,
           out.q_norm.data(), &bad);
  run_rows(name("anoco_norms_f32", "anoco_norms_f16"), p.refs, bank, p.refs, p.dim,
           out.r_norm.data(), &bad);
  CHECK(bad == ANOCO_GPU_NO_BAD_ROW);
  const std::vector<float> products = products_of(p.query, p.bank, p.dim);
  const float *s = products.data(), *qn = out.q_norm.data(), *rn = out.r_norm.data();
  run_rows("anoco_anchor", p.rows, s, qn, rn, p.rows, p.refs, out.anchor.data(), out.best.data());
  const int* anchor = out.anchor.data();
  std::vector<float> anchors(p.query.size());
  run_rows("anoco_gather_f32", p.rows, p.bank.data(), anchor, p.rows, p.dim, anchors.data());
  // The second product: anchors times bank, or the bank's Gram matrix. Both give the same result.
  const std::vector<float> others = products_of(gram ? p.bank : anchors, p.bank, p.dim);
  run_rows("anoco_violator", p.rows, s, others.data(), int(gram), qn, rn, anchor,
           (const float*)out.best.data(), p.rows, p.refs, out.limit.data());
  run_rows(name("anoco_aggregate_f32", "anoco_aggregate_f16"), p.rows, s, query, qn, bank, rn,
           anchor, (const float*)out.limit.data(), p.lambda, float(p.floor), p.rows, p.refs, p.dim,
           out.drift.data(), out.moved.data(), out.neighbors.data());
  run_rows(name("anoco_energy_f32", "anoco_energy_f16"), p.rows, query, qn,
           (const float*)out.drift.data(), (const float*)out.moved.data(), p.rows, p.dim, p.metric,
           out.energy.data());
  return out;
}

Result emulate(const Problem& p, bool half, bool gram) {
  if (!half) return emulate(p, p.query.data(), p.bank.data(), gram);
  const auto query = halves_of(p.query), bank = halves_of(p.bank);
  return emulate(p, query.data(), bank.data(), gram);
}

void compare(const char* name, const Problem& p, const Result& got, double most_undecided) {
  int undecided = 0;
  for (int i = 0; i < p.rows; ++i) {
    const Patch want = reference::solve(p, i);
    const auto at = size_t(i);
    CHECK(std::abs(got.q_norm[at] - want.norm) <= 1e-6 * want.norm);
    CHECK(std::abs(got.best[at] - want.similarity) <= 1e-6);
    CHECK(got.neighbors[at] >= 1 && got.neighbors[at] <= p.refs);
    CHECK(got.anchor[at] >= 0 && got.anchor[at] < p.refs);
    if (want.margin <= kUndecided) {
      ++undecided;
      continue;
    }
    const double off = std::abs(got.energy[at] - want.energy);
    if (got.anchor[at] == want.anchor && got.neighbors[at] == want.neighbors &&
        off <= 1e-4 * want.energy + 1e-9 * want.norm * want.norm)
      continue;
    std::fprintf(stderr, "%s, row %d: anchor %d (%d), neighbors %d (%d), energy %g (%g)\n", name, i,
                 got.anchor[at], want.anchor, got.neighbors[at], want.neighbors,
                 double(got.energy[at]), want.energy);
    std::exit(1);
  }
  CHECK(undecided <= most_undecided * p.rows);
}

void agree(const char* name, Problem p, double most_undecided = 0.05) {
  for (const bool half : {false, true}) {
    if (half) {
      round_to_half(p.query);
      round_to_half(p.bank);
    }
    simt::run_threads(simt::Order::forward);
    const Result got = emulate(p, half, false);
    compare(name, p, got, most_undecided);
    simt::run_threads(half ? simt::Order::backward : simt::Order::shuffled);
    CHECK(emulate(p, half, p.refs < 300).same_bits(got));
  }
}

void sizes() {
  const int shapes[][3] = {{1, 1, 1},     {1, 1, 7},     {1, 2, 3},     {3, 2, 5},    {2, 255, 31},
                           {2, 256, 256}, {2, 257, 257}, {3, 1024, 9},  {3, 1025, 2}, {2, 40, 1023},
                           {2, 40, 1025}, {1, 30, 2050}, {64, 576, 128}};
  for (const auto& shape : shapes)
    agree("sizes", clustered(shape[0], shape[1], shape[2]), shape[2] < 10 ? 1 : 0.05);
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

// A patch that is far from references which are all alike has all of them as neighbors: more than
// the list holds.
void all_neighbors(int refs, int dim) {
  Problem p = empty(1, refs, dim);
  const auto base = normals(size_t(dim));
  for (size_t i = 0; i < p.bank.size(); ++i) p.bank[i] = base[i % size_t(dim)] + 0.05f * normal();
  for (size_t i = 0; i < p.query.size(); ++i) p.query[i] = 0.3f * base[i % size_t(dim)] + normal();
  agree("all neighbors", p, 0);
  CHECK(reference::solve(p, 0).neighbors == refs);
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
  for (const bool half : {false, true}) {
    const Result got = emulate(p, half, half);
    const int anchors[] = {0, 7, 6}, neighbors[] = {1, 1, 1};
    for (size_t i = 0; i < 3; ++i) CHECK(got.anchor[i] == anchors[i]);
    for (size_t i = 0; i < 3; ++i) CHECK(got.neighbors[i] == neighbors[i]);
    for (size_t i = 0; i < 3; ++i) CHECK(got.best[i] == 1);
    CHECK(got.energy[0] == 0 && got.energy[1] == 0);
    // (0, 2) has its anchor's direction at another length; E of product is 0, drift is not.
    CHECK(got.energy[2] <= 1e-12f && got.drift[5] > 1);
    CHECK(got.limit[0] == 1);  // its copy: a = 1 is not over s* = 1
  }
  // -0 is as large as 0.
  const std::vector<float> zeros{-1, -0.0f, 0, -0.0f}, ones(4, 1.0f);
  float none = 1;
  int lowest = -1;
  run_rows("anoco_anchor", 1, zeros.data(), ones.data(), ones.data(), 1, 4, &lowest, &none);
  CHECK(lowest == 1 && none == 0);
}

// The first violators tie; a third reference has their similarity and is consistent.
void tied_violators() {
  const std::vector<float> products{10, 5, 5, 5, 9, 1}, others{1, 4, 9, 4, 12, 0},
      one{1, 1, 1, 1, 1, 1};
  const int anchor = 0;
  const float five = 5;
  float limit = 0;
  run_rows("anoco_violator", 1, products.data(), others.data(), 0, one.data(), one.data(), &anchor,
           &five, 1, 6, &limit);
  CHECK(limit == 5);
  std::vector<float> bank{1, 2, 3, 4, 5, 6}, q{1};
  float drift = 0, moved = 0;
  int count = 0;
  run_rows("anoco_aggregate_f32", 1, products.data(), (const float*)q.data(), one.data(),
           (const float*)bank.data(), one.data(), &anchor, (const float*)&limit, 1.0, 0.05f, 1, 6,
           1, &drift, &moved, &count);
  CHECK(count == 2);  // the anchor, and the reference with 9
  CHECK(std::abs(drift - 9 * 4.0 / 20) < 1e-6 && std::abs(moved - (1 + 10 + 45) / 20.0) < 1e-6);
}

void copies() {
  Problem p = clustered(5, 2 * ANOCO_GPU_BLOCK, 32);  // the same thread handles both copies
  std::copy_n(p.bank.begin(), p.bank.size() / 2,
              p.bank.begin() + std::ptrdiff_t(p.bank.size() / 2));
  std::copy_n(p.bank.begin(), p.query.size(), p.query.begin());  // the queries are enrolled patches
  const Result got = emulate(p, false, true);
  for (int i = 0; i < p.rows; ++i) {
    CHECK(got.anchor[size_t(i)] == i);
    CHECK(got.energy[size_t(i)] <= 1e-9 * p.dim);
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
        const Result got = emulate(p, false, false);
        compare("norms", p, got, 0.5);
        for (const float e : got.energy) CHECK(std::isfinite(e));
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
  const std::vector<float> products(600, NAN), one(300, 1.0f);
  std::vector<float> best(2);
  std::vector<int> anchor(2, -7);
  run_rows("anoco_anchor", 2, products.data(), one.data(), one.data(), 2, 300, anchor.data(),
           best.data());
  CHECK(anchor[0] == 0 && anchor[1] == 0 && std::isnan(best[0]) && std::isnan(best[1]));
}

// Thousands of terms that nearly cancel, after half of them have added up.
void cancelling_sums() {
  constexpr int kRefs = 5000, kDim = 3;
  std::vector<float> bank(size_t{kRefs} * kDim), products(kRefs, 1.0f), norms(kRefs, 1.0f);
  for (size_t i = 0; i < bank.size(); ++i)
    bank[i] = (i < bank.size() / 2 ? 1.0f : -1.0f) + 1e-3f * normal();
  const std::vector<float> q{0.125f, 0.0f, -0.125f}, q_norm{1}, limit{-kInfinity};
  const std::vector<int> anchor{17};
  std::vector<float> drift(kDim), moved(kDim);
  int count = 0;
  run_rows("anoco_aggregate_f32", 1, (const float*)products.data(), q.data(), q_norm.data(),
           (const float*)bank.data(), (const float*)norms.data(), anchor.data(), limit.data(), 1.0,
           0.05f, 1, kRefs, kDim, drift.data(), moved.data(), &count);
  CHECK(count == kRefs);
  for (size_t k = 0; k < kDim; ++k) {
    double pull = 0, sum = q[k];
    for (size_t j = 0; j < kRefs; ++j) {
      pull += double(bank[j * kDim + k]) - double(q[k]);
      sum += double(bank[j * kDim + k]);
    }
    const auto near = [](float got, double want) {
      return std::abs(got - want) <= 2e-9 + 1e-7 * std::abs(want);
    };
    CHECK(near(drift[k], pull / (kRefs + 1)));
    CHECK(near(moved[k], sum / (kRefs + 1)));
  }
}

void energies() {
  // An f~ of length zero has no direction, and its cosine is 0.
  const std::vector<float> q{3, 4}, norm{5}, drift{-3, -4}, none{0, 0};
  const float expected[] = {25, 25, 1};
  for (const int metric : {0, 1, 2}) {
    float energy = -1;
    run_rows("anoco_energy_f32", 1, q.data(), norm.data(), drift.data(), none.data(), 1, 2, metric,
             &energy);
    CHECK(energy == expected[metric]);
  }
  const std::vector<float> broken{NAN, 1};
  float energy = 0;
  run_rows("anoco_energy_f32", 1, q.data(), norm.data(), broken.data(), broken.data(), 1, 2, 0,
           &energy);
  CHECK(std::isnan(energy));
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

}  // namespace

int main() {
  halves();
  moving_rows();
  bad_rows();
  broken_products();
  energies();
  ties();
  tied_violators();
  copies();
  opposed();
  metrics();
  extreme_norms();
  cancelling_sums();
  for (const int refs : {700, 1024, 1025, 2500}) all_neighbors(refs, 24);
  all_neighbors(1100, 1030);
  sizes();
  return 0;
}
