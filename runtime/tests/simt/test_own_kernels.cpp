// Tests the kernels that need no cuBLAS: candidates by tensor cores, products for dense rows, and
// what comes after them when products are not kept. Every case runs in two orders of threads, which
// must give the same bits.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

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
using reference::Problem;
using simt::blocks;
using simt::emulate;
using simt::halves_of;
using simt::Products;
using simt::Result;
using simt::round_to_half;
using simt::run_rows;

using Ranked = unsigned long long;
using Halves = std::vector<uint16_t>;

size_t groups_of(int refs) { return blocks(refs, ANOCO_GPU_GROUP); }

std::vector<float> products_of(const Problem& p, const Halves& query, const Halves& bank) {
  std::vector<float> out(size_t(p.rows) * size_t(p.refs), -1.0f);
  run_rows("anoco_products_f16", 2, query.data(), (const int*)nullptr, (const int*)nullptr, 0,
           p.rows, bank.data(), p.refs, p.dim, out.data());
  return out;
}

// The candidates by one kernel are those of the products by another, bit for bit, and the products
// are right.
void candidates(Problem p) {
  round_to_half(p.query);
  round_to_half(p.bank);
  const Halves query = halves_of(p.query), bank = halves_of(p.bank);
  const std::vector<float> products = products_of(p, query, bank);
  std::vector<float> q_norm(size_t(p.rows)), r_norm(size_t(p.refs));
  for (size_t i = 0; i < q_norm.size(); ++i) q_norm[i] = 1 + float(i % 7);
  for (size_t j = 0; j < r_norm.size(); ++j) r_norm[j] = 1 + float(j % 5);
  const size_t dim = size_t(p.dim);
  for (size_t i = 0; i < q_norm.size(); ++i)
    for (size_t j = 0; j < r_norm.size(); ++j) {
      double sum = 0, sizes = 0;
      for (size_t k = 0; k < dim; ++k) {
        const double term = double(p.query[i * dim + k]) * double(p.bank[j * dim + k]);
        sum += term;
        sizes += std::abs(term);
      }
      CHECK(!(std::abs(double(products[i * r_norm.size() + j]) - sum) > 1e-5 * sizes));
    }
  const size_t count = q_norm.size() * groups_of(p.refs) * 2;
  std::vector<Ranked> expected(count, 1), found(count, 2);
  run_rows("anoco_candidates", p.rows, products.data(), (const float*)q_norm.data(),
           (const float*)r_norm.data(), p.rows, p.refs, expected.data());
  run_rows("anoco_qr_top2_f16",
           int(blocks(p.rows, ANOCO_GPU_PRODUCT_TILE) * blocks(p.refs, ANOCO_GPU_PRODUCT_TILE)),
           query.data(), (const float*)q_norm.data(), bank.data(), (const float*)r_norm.data(),
           p.rows, p.refs, p.dim, found.data());
  CHECK(found == expected);
}

// Edges of tiles, of groups, of stages and of what is copied at a time; some references are copies
// of others, in the same lane, in another lane, group and tile; some products are NaN or infinite.
void all_candidates() {
  const int shapes[][3] = {{1, 1, 1},     {3, 63, 8},    {128, 64, 7}, {129, 65, 16},
                           {5, 127, 24},  {6, 129, 31},  {7, 128, 32}, {8, 257, 33},
                           {530, 130, 8}, {2, 300, 100}, {2, 70, 264}};
  for (const auto& shape : shapes) {
    Problem p = clustered(shape[0], shape[1], shape[2]);
    const size_t dim = size_t(p.dim), refs = size_t(p.refs);
    for (size_t j = 1; j < refs; ++j)
      for (const size_t apart : {1, 2, 8, 64, 128})
        if (j % 11 == apart % 11 && j >= apart)
          std::copy_n(p.bank.begin() + std::ptrdiff_t((j - apart) * dim), dim,
                      p.bank.begin() + std::ptrdiff_t(j * dim));
    candidates(p);
  }
  Problem broken = clustered(3, 130, 16);
  broken.query[0] = NAN;
  broken.query[17] = std::numeric_limits<float>::infinity();
  candidates(broken);
}

void agree(const char* name, Problem p, double most_undecided = 0.05) {
  for (const bool half : {false, true}) {
    if (half) {
      round_to_half(p.query);
      round_to_half(p.bank);
    }
    simt::run_threads(simt::Order::forward);
    const Result got = emulate(p, half, false, Products::own);
    compare(name, p, got, most_undecided);
    simt::run_threads(simt::Order::shuffled);
    CHECK(emulate(p, half, false, Products::own).same_bits(got));
    simt::run_threads(simt::Order::backward);
    if (p.refs < 300) compare(name, p, emulate(p, half, true, Products::own), most_undecided);
  }
}

void sizes() {
  const int shapes[][3] = {{1, 1, 1}, {2, 255, 31}, {40, 200, 64}};
  for (const auto& shape : shapes)
    agree("sizes", clustered(shape[0], shape[1], shape[2]), shape[2] < 10 ? 1 : 0.05);
}

// Neighbors that are next to each other in the bank, so that their groups are looked at again and
// again; as many as are listed, and more.
void neighbors_of_one_group() {
  for (const int refs : {64, int(ANOCO_GPU_LISTED), int(ANOCO_GPU_LISTED) + 1}) {
    const Problem p = crowded(2, refs, 24);
    agree("one group", p);
    CHECK(reference::solve(p, 0).neighbors == refs);
    CHECK(emulate(p, true, false, Products::own).dense == (refs > ANOCO_GPU_LISTED ? 2 : 0));
  }
  agree("alike", alike(3, 300, 33), 0);
}

// Three neighbors in each of so many groups: the third is found by computing a group again, of
// which a row may have ANOCO_GPU_AGAIN.
void neighbors_of_many_groups() {
  for (const int groups : {int(ANOCO_GPU_AGAIN), int(ANOCO_GPU_AGAIN) + 1}) {
    Problem p = empty(1, groups * ANOCO_GPU_GROUP, 16);
    const auto base = normals(16);
    for (size_t i = 0; i < p.bank.size(); ++i) {
      const bool near = i / 16 % ANOCO_GPU_GROUP % 9 == 5 && i / 16 % ANOCO_GPU_GROUP < 24;
      p.bank[i] = (near ? 1.0f : -1.0f) * base[i % 16] + 0.05f * normal();
    }
    for (size_t i = 0; i < p.query.size(); ++i) p.query[i] = 0.3f * base[i] + 0.1f * normal();
    round_to_half(p.query);
    round_to_half(p.bank);
    const Result got = emulate(p, true, false, Products::own);
    compare("many groups", p, got, 0);
    CHECK(got.neighbors[0] == 3 * groups);
    CHECK(got.dense == (groups > ANOCO_GPU_AGAIN ? 1 : 0));
  }
}

// More dense rows than are finished at a time, among others.
void dense_rows() {
  Problem p = empty(50, 140, 20);
  const auto base = normals(20);
  for (size_t i = 0; i < p.bank.size(); ++i) p.bank[i] = base[i % 20] + 0.05f * normal();
  for (size_t i = 0; i < p.query.size(); ++i)
    p.query[i] = i / 20 % 5 == 2 ? p.bank[i] + 0.01f * normal() : 0.3f * base[i % 20] + normal();
  agree("dense rows", p, 0.1);
  const int dense = emulate(p, true, false, Products::own).dense;
  CHECK(dense > 33 && dense < 50);
}

// Weighted means of references by tensor cores: edges of tiles and stages, stages without a weight
// and with a single one, and sums that nearly cancel. Every second row is listed.
void weighted_means(int rows, int refs, int dim) {
  std::vector<float> weights(size_t(rows) * size_t(refs)), bank(size_t(refs) * size_t(dim));
  for (size_t i = 0; i < bank.size(); ++i)
    bank[i] = (i / size_t(dim) % 2 == 0 ? 1.0f : -1.0f) + 1e-3f * normal();
  round_to_half(bank);
  for (size_t i = 0; i < weights.size(); ++i) {
    const int row = int(i) / refs, j = int(i) % refs;
    const float equal = (1 + 0.1f * float(j % 3)) / (1.2f * float(refs));
    const bool alone = j == refs * 3 / 4;
    weights[i] = row % 3 == 0 ? equal : row % 3 == 1 ? (alone ? 1.0f : 0) : j < 40 ? equal : 0;
  }
  std::vector<int> list;
  for (int row = 0; row < rows; row += 2) list.push_back(row);
  const int count = int(list.size());
  list.resize(size_t(rows));
  std::vector<float> mean(size_t(count) * size_t(dim) + 1, 7.0f);
  const Halves halves = halves_of(bank);
  run_rows("anoco_dense_pull_f16", 3, (const float*)weights.data(), halves.data(),
           (const int*)list.data(), &count, 0, rows, 0, refs, dim, mean.data());
  CHECK(mean.back() == 7);
  for (int n = 0; n < count; ++n)
    for (int k = 0; k < dim; ++k) {
      double sum = 0, sizes = 0;
      for (int j = 0; j < refs; ++j) {
        const double term = double(weights[size_t(list[size_t(n)]) * size_t(refs) + size_t(j)]) *
                            double(bank[size_t(j) * size_t(dim) + size_t(k)]);
        sum += term;
        sizes += std::abs(term);
      }
      const double found = double(mean[size_t(n) * size_t(dim) + size_t(k)]);
      CHECK(std::abs(found - sum) <= 4e-7 * sizes);
    }
}

// Whole numbers make products exact and ties real: the lowest index wins, references that tie with
// the first violator are left out, and copies change nothing but counts.
void ties() {
  Problem p = empty(3, 8, 2);
  p.bank = {4, 3, 3, 4, 4, 3, 3, 4, -3, 4, 4, -3, 0, 5, 5, 0};
  p.query = {4, 3, 5, 0, 0, 2};
  for (const bool gram : {false, true}) {
    const Result got = emulate(p, true, gram, Products::own);
    const int anchors[] = {0, 7, 6};
    for (size_t i = 0; i < 3; ++i)
      CHECK(got.anchor[i] == anchors[i] && got.neighbors[i] == 1 && got.best[i] == 1);
  }
  // All of a group are as similar as the anchor and consistent with nothing.
  Problem same = empty(2, 200, 3);
  for (size_t i = 0; i < same.bank.size(); ++i) same.bank[i] = float(i % 3 == 0 ? 3 : 4);
  same.query = {1, 0, 0, 0, 2, 0};
  for (const bool gram : {false, true}) {
    const Result got = emulate(same, true, gram, Products::own);
    for (const size_t i : {0, 1}) CHECK(got.anchor[i] == 0);
    CHECK(got.neighbors[0] == 200);  // a = 1 > s*: no violator, so that all are neighbors
  }
}

void copies() {
  Problem p = clustered(5, 2 * ANOCO_GPU_PRODUCT_TILE, 32);
  std::copy_n(p.bank.begin(), p.bank.size() / 2,
              p.bank.begin() + std::ptrdiff_t(p.bank.size() / 2));
  std::copy_n(p.bank.begin(), p.query.size(), p.query.begin());  // the queries are enrolled patches
  round_to_half(p.query);
  round_to_half(p.bank);
  const Result got = emulate(p, true, false, Products::own);
  for (size_t i = 0; i < 5; ++i)
    CHECK(got.anchor[i] == int(i) && got.neighbors[i] == 1 && got.energy[i] <= 1e-9 * p.dim);
}

// One picture, so that what its kernels do can be counted (ANOCO_PTX_COUNTERS).
int run_picture() {
  Problem p = clustered(64, 576, 128);
  for (size_t i = 0; i < p.query.size(); ++i) p.query[i] = p.bank[i] + 0.41f * normal();
  emulate(p, true, false, Products::own);
  return 0;
}

}  // namespace

int main(int argc, char**) {
  if (argc > 1) return run_picture();
  all_candidates();
  ties();
  copies();
  neighbors_of_one_group();
  neighbors_of_many_groups();
  dense_rows();
  for (const int refs : {1, 31, 32, 33, 65, 1500}) weighted_means(5, refs, 24);
  weighted_means(150, 70, 13);
  weighted_means(150, 70, 264);
  sizes();
  return 0;
}
