// Tests the kernels that need no cuBLAS: candidates by tensor cores, products for dense rows, and
// what comes after them when products are not kept. Every case runs in two orders of threads, which
// must give the same bits.
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
using reference::Problem;
using simt::blocks;
using simt::emulate;
using simt::Factors;
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

void agree(const char* name, Problem p, double most_undecided = 0.05,
           const simt::ManyFactors& all = simt::kDefaultFactors) {
  for (const Factors factors : all) {
    if (factors == Factors::half) {
      round_to_half(p.query);
      round_to_half(p.bank);
    }
    simt::run_threads(simt::Order::forward);
    const Result got = emulate(p, factors, false, Products::own);
    compare(name, p, got, most_undecided);
    simt::run_threads(simt::Order::shuffled);
    CHECK(emulate(p, factors, false, Products::own).same_bits(got));
    simt::run_threads(simt::Order::backward);
    if (p.refs < 300) compare(name, p, emulate(p, factors, true, Products::own), most_undecided);
  }
}

// Rows of which some are easy, and the others have numbers from 1e-40 to 1e9 side by side, one
// number alone, or numbers that are hardly normal.
std::vector<float> hard_rows(int rows, int dim) {
  std::vector<float> out = normals(size_t(rows) * size_t(dim));
  for (size_t i = 0; i < out.size(); ++i) {
    const size_t row = i / size_t(dim), k = i % size_t(dim);
    switch (row % 6) {
      case 1: {  // below what is normal, too
        out[i] *= std::pow(10.0f, 8 - float((size_t(dim) - 1 - k) % 50));
        break;
      }
      case 2: out[i] = k == row % size_t(dim) ? 1e9f : 1e-30f; break;
      case 3: out[i] = k == row % size_t(dim) ? 3.3e-10f : 0; break;
      case 4:
        out[i] = (k % 2 == 0 ? 1.0f : -1.0f) * (2 - 0x1p-23f) * (k % 3 == 0 ? 1 : 0x1p-12f);
        break;
      case 5: out[i] *= 1e-9f; break;
    }
  }
  return out;
}

double norm_of(const std::vector<float>& rows, size_t row, size_t dim) {
  double squares = 0;
  for (size_t k = row * dim; k < (row + 1) * dim; ++k) squares += double(rows[k]) * double(rows[k]);
  return std::sqrt(squares);
}

std::vector<float> norms_of(const std::vector<float>& rows, int dim) {
  std::vector<float> out(rows.size() / size_t(dim));
  int bad = ANOCO_GPU_NO_BAD_ROW;
  run_rows("anoco_norms_f32", int(out.size()), rows.data(), int(out.size()), dim, out.data(), &bad);
  CHECK(bad == ANOCO_GPU_NO_BAD_ROW);
  return out;
}

double number_of(uint16_t half) {
  const int exponent = half >> 10 & 31, fraction = half & 1023;
  CHECK(exponent < 31);  // neither infinite nor NaN
  const double size =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return half >> 15 != 0 ? -size : size;
}

// Parts are the row times a power of two, with what cuda/parts.cu says of their rest, and their
// products are right to what it says.
void parts(int rows, int refs, int dim) {
  const std::vector<float> query = hard_rows(rows, dim), bank = hard_rows(refs, dim);
  const size_t width = size_t(dim);
  const auto q = simt::parts_of(query, norms_of(query, dim), dim, false);
  const auto r = simt::parts_of(bank, norms_of(bank, dim), dim, true);
  const size_t part = size_t(q.dim) / 3;
  CHECK(q.dim == r.dim && part % ANOCO_GPU_PIECE == 0 && part >= width && part < width + 8);
  for (size_t i = 0; i < q.norms.size(); ++i) {
    const uint16_t* row = q.rows.data() + i * 3 * part;
    const double norm = norm_of(query, i, width);
    const double scale = std::exp2(std::round(std::log2(double(q.norms[i]) / norm)));
    CHECK(std::abs(double(q.norms[i]) / norm / scale - 1) < 1e-6);
    double largest = 0;
    for (size_t k = 0; k < part; ++k) {
      const double wanted = k < width ? scale * double(query[i * width + k]) : 0;
      const double low = number_of(row[k]), high = number_of(row[part + k]);
      CHECK(row[part + k] == row[2 * part + k]);
      CHECK(std::abs(high + low - wanted) <= std::exp2(-22) * std::abs(wanted) + std::exp2(-25));
      CHECK(std::abs(low) <= std::exp2(-11) * std::abs(wanted) + std::exp2(-25));
      largest = std::max(largest, std::abs(wanted));
    }
    CHECK(largest >= std::exp2(14) && largest < std::exp2(15));
  }
  for (size_t j = 0; j < r.norms.size(); ++j)
    for (size_t k = 0; k < part; ++k)
      CHECK(r.rows[j * 3 * part + k] == r.rows[j * 3 * part + 2 * part + k]);
  std::vector<float> products(q.norms.size() * r.norms.size());
  run_rows("anoco_products_f16", 2, q.rows.data(), (const int*)nullptr, (const int*)nullptr, 0,
           rows, r.rows.data(), refs, q.dim, products.data());
  for (size_t i = 0; i < q.norms.size(); ++i)
    for (size_t j = 0; j < r.norms.size(); ++j) {
      double sum = 0;
      for (size_t k = 0; k < width; ++k)
        sum += double(query[i * width + k]) * double(bank[j * width + k]);
      const double wanted = sum / (norm_of(query, i, width) * norm_of(bank, j, width));
      const double found =
          double(products[i * r.norms.size() + j]) / (double(q.norms[i]) * double(r.norms[j]));
      CHECK(std::abs(found - wanted) <= 3 * std::exp2(-22) + 8e-7);  // of parts, and of sums
    }
}

// What can only be refused by its norm stays within memory: no number, and numbers too small or
// too large.
void parts_of_bad_rows() {
  const float none = std::numeric_limits<float>::quiet_NaN();
  const float infinite = std::numeric_limits<float>::infinity();
  const std::vector<float> rows{0, 0, 1e-45f, 0, 1e-38f, 1, none, 1, infinite, 1, 3e38f, -3e38f};
  const auto found = simt::parts_of(rows, std::vector<float>(6, 1.0f), 2, true);
  CHECK(found.rows.size() == 6 * 24);
  for (size_t k = 0; k < 24; ++k) CHECK(found.rows[k] == 0);
  CHECK(number_of(found.rows[5 * 24]) >= 16384);
}

// The patches of hard rows are scored as the method says, too.
void hard_features() {
  Problem p = empty(12, 150, 40);
  p.bank = hard_rows(150, 40);
  p.query = hard_rows(12, 40);
  for (const bool gram : {false, true})
    compare("hard", p, emulate(p, Factors::parts, gram, Products::own), 0.8);
}

void sizes() {
  const int shapes[][3] = {{1, 1, 1}, {2, 255, 31}, {40, 200, 64}};
  for (const auto& shape : shapes)
    agree("sizes", clustered(shape[0], shape[1], shape[2]), shape[2] < 10 ? 1 : 0.05,
          simt::kAllFactors);
}

// Neighbors that are next to each other in the bank, so that their groups are looked at again and
// again; as many as are listed, and more.
void neighbors_of_one_group() {
  for (const int refs : {64, int(ANOCO_GPU_LISTED), int(ANOCO_GPU_LISTED) + 1}) {
    const Problem p = crowded(2, refs, 24);
    agree("one group", p);
    CHECK(reference::solve(p, 0).neighbors == refs);
    CHECK(emulate(p, Factors::half, false, Products::own).dense ==
          (refs > ANOCO_GPU_LISTED ? 2 : 0));
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
    const Result got = emulate(p, Factors::half, false, Products::own);
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
  agree("dense rows", p, 0.1, simt::kAllFactors);
  const int dense = emulate(p, Factors::half, false, Products::own).dense;
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
  for (const Factors factors : {Factors::half, Factors::parts})
    for (const bool gram : {false, true}) {
      const Result got = emulate(p, factors, gram, Products::own);
      const int anchors[] = {0, 7, 6};
      for (size_t i = 0; i < 3; ++i)
        CHECK(got.anchor[i] == anchors[i] && got.neighbors[i] == 1 && got.best[i] == 1);
    }
  // All of a group are as similar as the anchor and consistent with nothing.
  Problem same = empty(2, 200, 3);
  for (size_t i = 0; i < same.bank.size(); ++i) same.bank[i] = float(i % 3 == 0 ? 3 : 4);
  same.query = {1, 0, 0, 0, 2, 0};
  for (const Factors factors : {Factors::half, Factors::parts})
    for (const bool gram : {false, true}) {
      const Result got = emulate(same, factors, gram, Products::own);
      for (const size_t i : {0, 1}) CHECK(got.anchor[i] == 0);
      CHECK(got.neighbors[0] == 200);  // a = 1 > s*: no violator, so that all are neighbors
    }
}

void copies() {
  Problem p = clustered(5, 2 * ANOCO_GPU_PRODUCT_TILE, 32);
  std::copy_n(p.bank.begin(), p.bank.size() / 2,
              p.bank.begin() + std::ptrdiff_t(p.bank.size() / 2));
  std::copy_n(p.bank.begin(), p.query.size(), p.query.begin());  // the queries are enrolled patches
  for (const Factors factors : {Factors::parts, Factors::half}) {
    if (factors == Factors::half) {
      round_to_half(p.query);
      round_to_half(p.bank);
    }
    const Result got = emulate(p, factors, false, Products::own);
    for (size_t i = 0; i < 5; ++i)
      CHECK(got.anchor[i] == int(i) && got.neighbors[i] == 1 && got.energy[i] <= 1e-9 * p.dim);
  }
}

// One picture, so that what its kernels do can be counted (ANOCO_PTX_COUNTERS).
int run_picture(Factors factors) {
  Problem p = clustered(64, 576, 128);
  for (size_t i = 0; i < p.query.size(); ++i) p.query[i] = p.bank[i] + 0.41f * normal();
  emulate(p, factors, false, Products::own);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1)
    return run_picture(std::string(argv[1]) == "parts" ? Factors::parts : Factors::half);
  all_candidates();
  parts(13, 70, 100);
  parts(6, 6, 1);
  parts(7, 5, 1031);
  parts_of_bad_rows();
  ties();
  copies();
  neighbors_of_one_group();
  neighbors_of_many_groups();
  dense_rows();
  hard_features();
  for (const int refs : {1, 31, 32, 33, 65, 1500}) weighted_means(5, refs, 24);
  weighted_means(150, 70, 13);
  weighted_means(150, 70, 264);
  sizes();
  return 0;
}
