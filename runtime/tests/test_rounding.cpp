// Attacks the bounds from rounded numbers (rounding.hpp), and compares scores with and without
// them bit by bit. The bounds are computed with plain loops too, so that they are tested where the
// processor has no instructions for them.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "failure.hpp"
#include "scorer/rounding.hpp"
#include "scorer/scorer.hpp"
#include "tests/check.h"

using namespace anoco;

namespace {

std::mt19937 generator(11);
float normal() { return std::normal_distribution<float>()(generator); }
int64_t below(int64_t end) { return int64_t(generator() % uint32_t(end)); }

using Rows = std::vector<float>;

Rows noise(int64_t count) {
  Rows out(static_cast<size_t>(count));
  for (float& number : out) number = normal();
  return out;
}

// Rounds to the nearest bfloat16, to the even one if two are as near.
float rounded(float number) {
  uint32_t bits;
  std::memcpy(&bits, &number, sizeof bits);
  bits = (bits + 0x7fffu + (bits >> 16 & 1u)) & 0xffff0000u;
  std::memcpy(&number, &bits, sizeof bits);
  return number;
}

struct Rounded {
  std::vector<double> numbers;
  float squares = 0, inverse = 0;
};

Rounded round_plainly(const float* row, int64_t dim) {
  Rounded out;
  double norm = 0;
  for (int64_t k = 0; k < dim; ++k) {
    const float number = rounded(row[k]), error = row[k] - number;
    out.numbers.push_back(number);
    out.squares += error * error;
    norm += double(row[k]) * double(row[k]);
  }
  out.inverse = float(1 / std::sqrt(norm));
  return out;
}

// Returns the bound minus the cosine.
double gap(const float* q, const float* r, int64_t dim) {
  const Rounded left = round_plainly(q, dim), right = round_plainly(r, dim);
  double product = 0, exact = 0, q_squares = 0, r_squares = 0;
  for (int64_t k = 0; k < dim; ++k) {
    product += left.numbers[size_t(k)] * right.numbers[size_t(k)];
    exact += double(q[k]) * double(r[k]);
    q_squares += double(q[k]) * double(q[k]);
    r_squares += double(r[k]) * double(r[k]);
  }
  const double e = double(rounding_error(left.squares, left.inverse, dim));
  const double f = double(rounding_error(right.squares, right.inverse, dim));
  const double bound = product * double(left.inverse) * double(right.inverse) + (1 + e) * f + e +
                       double(rounding_allowance(dim));
  return bound - exact / std::sqrt(q_squares * r_squares);
}

// Every number lies half-way between two rounded ones, and is rounded down: what rounding takes
// away is parallel to what is left, so that Cauchy-Schwarz is met. `up` makes some go up.
Rows half_way(int64_t dim, bool up) {
  Rows out(static_cast<size_t>(dim));
  for (float& number : out) {
    const float even = 1 + float(below(4)) / 64;
    number = (up && below(2) != 0 ? even + 3.0f / 256 : even + 1.0f / 256) *
             std::ldexp(1.0f, int(below(3)) - 1);
  }
  return out;
}

void attack_bounds() {
  double closest = 1;
  for (const int64_t dim : {1, 2, 7, 64, 1024})
    for (int round = 0; round < 200; ++round) {
      const bool up = round % 4 == 3;
      const Rows q = round % 4 == 0 ? noise(dim) : half_way(dim, up);
      const Rows r = round % 4 == 1 ? noise(dim) : round % 4 == 2 ? q : half_way(dim, up);
      const double found = gap(q.data(), r.data(), dim);
      CHECK(found >= 0);
      closest = std::min(closest, found);
    }
  CHECK(closest < 1e-3);  // the bound is met, so the attack is one
  std::printf("closest bound %.1e above\n", closest);
}

// ---- The instructions ----

void check_rounding(const Kernels& k) {
  for (const int64_t dim : {1, 2, 15, 16, 17, 31, 32, 33, 50, 1024}) {
    const Rows row = noise(dim);
    const int64_t pairs = rounded_pairs(dim);
    std::vector<float> out(size_t(pairs + 1), 7.0f);
    const float squares = k.rounded->round(row.data(), dim, out.data());
    const Rounded expected = round_plainly(row.data(), dim);
    CHECK(std::abs(squares - expected.squares) <= 1e-5f * expected.squares);
    CHECK(out.back() == 7.0f);
    for (int64_t c = 0; c < dim; ++c) {
      uint16_t half;
      std::memcpy(&half, reinterpret_cast<const char*>(out.data()) + 2 * c, sizeof half);
      const uint32_t bits = uint32_t(half) << 16;
      float number;
      std::memcpy(&number, &bits, sizeof number);
      CHECK(double(number) == expected.numbers[size_t(c)]);
    }
  }
}

// Ordered products have the bits of the matrix product.
void check_order(const Kernels& k) {
  for (const int64_t dim : {1, 15, 16, 100, 256, 257, 300, 1024, 1030})
    for (const int64_t count : {int64_t{1}, int64_t{5}, k.nr - 1, k.nr}) {
      const Rows x = noise(dim), y = noise(count * dim);
      std::vector<uint16_t> half(y.size());
      for (uint16_t& number : half) number = uint16_t(below(0x7c00) | below(2) << 15);
      std::vector<const void*> rows, halves;
      for (int64_t r = 0; r < count; ++r) {
        rows.push_back(y.data() + r * dim);
        halves.push_back(half.data() + r * dim);
      }
      const float* query = x.data();
      std::vector<float> left(size_t(k.mr * dim)), right(size_t(k.nr * dim));
      std::vector<float> product(size_t(k.mr * k.nr)), out(size_t(count + 1), 7.0f);
      k.pack_a(&query, 1, dim, left.data());
      for (const bool use_half : {false, true}) {
        if (use_half) {
          k.pack_b_half(half.data(), dim, count, dim, right.data());
          k.rounded->ordered_dots_half(query, halves.data(), count, dim, out.data());
        } else {
          k.pack_b(y.data(), dim, count, dim, right.data());
          k.rounded->ordered_dots(query, rows.data(), count, dim, out.data());
        }
        for (int64_t at = 0; at < dim; at += kDepth)
          k.multiply(std::min(kDepth, dim - at), left.data() + at * k.mr, right.data() + at * k.nr,
                     product.data(), k.nr, at > 0);
        CHECK(std::memcmp(out.data(), product.data(), size_t(count) * sizeof(float)) == 0);
        CHECK(out.back() == 7.0f);
      }
    }
}

// ---- Scores ----

struct Found {
  std::vector<float> energy, similarity;
  std::vector<int64_t> anchor, neighbors;
  bool operator==(const Found& other) const {
    const auto same = [](const std::vector<float>& a, const std::vector<float>& b) {
      return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
    };
    return same(energy, other.energy) && same(similarity, other.similarity) &&
           anchor == other.anchor && neighbors == other.neighbors;
  }
};

struct Problem {
  Rows query, bank;
  int64_t dim;
  int32_t directions = 0;
};

Found score(const Problem& given, Rounding rounding, int threads, int64_t memory) {
  anoco_bank_options options = ANOCO_BANK_OPTIONS_INIT;
  options.features = given.bank.data();
  options.dim = given.dim;
  options.rows = int64_t(given.bank.size()) / given.dim;
  options.directions = given.directions;
  Settings settings;
  settings.threads = threads;
  settings.memory = memory;
  settings.rounding = rounding;
  Scorer scorer(std::make_shared<const Bank>(options), settings);
  const size_t rows = given.query.size() / size_t(given.dim);
  Found out{Rows(rows), Rows(rows), std::vector<int64_t>(rows), std::vector<int64_t>(rows)};
  scorer.score(given.query.data(), int64_t(rows),
               {out.energy.data(), out.anchor.data(), out.similarity.data(), out.neighbors.data()});
  return out;
}

void compare(const Problem& given) {
  const Found expected = score(given, Rounding::kNever, 1, kDefaultMemory);
  CHECK(score(given, Rounding::kAlways, 1, kDefaultMemory) == expected);
  CHECK(score(given, Rounding::kAlways, 3, kDefaultMemory) == expected);
  CHECK(score(given, Rounding::kWhereItPays, 2, kDefaultMemory) == expected);
  if (given.directions == 0)  // which rows directions help depends on the tile
    CHECK(score(given, Rounding::kAlways, 2, 1) == expected);
}

// Draws rows around some centers, with repeated, scaled and opposite ones among them.
Rows draw(int64_t rows, int64_t dim, const Rows& centers, float spread, int wild) {
  Rows out;
  const int64_t count = int64_t(centers.size()) / dim;
  for (int64_t j = 0; j < rows; ++j) {
    const int64_t kind = below(8), center = below(count);
    const float length = std::pow(10.0f, float(below(2 * wild + 1) - wild));
    const float sign = kind == 7 && below(4) == 0 ? -1.0f : 1.0f;
    for (int64_t c = 0; c < dim; ++c) {
      const float place = centers[size_t(center * dim + c)];
      const float repeated = j > 0 ? out[size_t((j - 1) * dim + c)] : place;
      out.push_back(kind == 0 ? repeated : sign * length * (place + spread * normal()));
    }
  }
  return out;
}

void compare_scores() {
  for (int round = 0; round < 120; ++round) {
    const int64_t dims[] = {2, 3, 16, 40, 97, 260, 300};
    Problem given;
    given.dim = dims[round % 7];
    const int64_t references = round % 9 == 0 ? 1 : 1 + below(round % 5 == 0 ? 1400 : 260);
    const Rows centers = noise(given.dim * (1 + below(12)));
    const float spreads[] = {0.0f, 1e-3f, 0.1f, 0.6f, 3.0f};
    const float spread = spreads[round % 5];
    given.bank = draw(references, given.dim, centers, spread, round % 3 == 0 ? 3 : 0);
    given.query = draw(1 + below(40), given.dim, centers, spread, round % 4 == 0 ? 3 : 0);
    // Some queries are references, or opposite to one.
    for (int64_t k = 0; k < 3; ++k) {
      const int64_t from = below(references);
      for (int64_t c = 0; c < given.dim; ++c)
        given.query.push_back((k == 2 ? -2.0f : 1.0f) * given.bank[size_t(from * given.dim + c)]);
    }
    if (round % 6 == 1)  // nothing but ties
      for (float& number : given.bank) number = number > 0.5f ? 1.0f : 0.25f;
    if (round % 6 == 4) {  // everything is a neighbor
      for (float& number : given.bank) number = 3 + 0.1f * number;
      for (float& number : given.query) number = 0.3f + number;
    }
    if (round % 2 == 1 && given.dim >= 16) given.directions = int32_t(given.dim / 4);
    compare(given);
  }
}

void refuse_zeros() {
  Problem given{noise(32), noise(64), 16};
  std::fill(given.query.begin(), given.query.begin() + 16, 0.0f);
  bool refused = false;
  try {
    score(given, Rounding::kAlways, 1, kDefaultMemory);
  } catch (const Failure&) {
    refused = true;
  }
  CHECK(refused);
}

}  // namespace

int main() {
  attack_bounds();
  if (kernels().rounded == nullptr) {
    std::printf("%s has no products of rounded numbers\n", kernels().name);
    return 0;
  }
  check_rounding(kernels());
  check_order(kernels());
  compare_scores();
  refuse_zeros();
  std::printf("%s: the same bits\n", kernels().name);
  return 0;
}
