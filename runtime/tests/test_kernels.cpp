// Compares every table of kernels that this processor can run with plain loops in float64.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/kernels.hpp"
#include "tests/check.h"

using anoco::kBlock;
using anoco::Kernels;

namespace {

std::mt19937 generator(3);

std::vector<float> numbers(int64_t count) {
  std::normal_distribution<float> normal;
  std::vector<float> out(static_cast<size_t>(count));
  for (float& number : out) number = normal(generator);
  return out;
}

// Makes halves of all kinds, and their values computed from sign, exponent and fraction.
double half_value(uint16_t half) {
  const int exponent = (half >> 10) & 31, fraction = half & 1023;
  const double sign = (half & 0x8000) != 0 ? -1 : 1;
  if (exponent == 31) return fraction != 0 ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

bool near(double got, double expected, double scale) {
  return std::abs(got - expected) <= 1e-6 * scale;
}

void halves(const Kernels& k) {
  std::vector<uint16_t> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  std::vector<float> wide(all.size());
  for (int64_t skip : {0, 3}) {  // whole vectors, and a rest
    k.widen(all.data() + skip, 65536 - skip, wide.data());
    for (size_t i = static_cast<size_t>(skip); i < all.size(); ++i) {
      const double expected = half_value(all[i]), got = double(wide[i - size_t(skip)]);
      CHECK(std::isnan(expected) ? std::isnan(got) : got == expected);
      CHECK(std::isnan(expected) || std::signbit(got) == std::signbit(expected));
    }
  }
}

void multiplication(const Kernels& k) {
  for (int64_t depth : {1, 2, 7, 64, 255}) {
    const int64_t stride = k.nr + 5;
    const auto a = numbers(depth * k.mr), b = numbers(depth * k.nr);
    auto c = numbers(k.mr * stride);
    const auto before = c;
    for (const bool add : {false, true}) {
      const auto start = c;
      k.multiply(depth, a.data(), b.data(), c.data(), stride, add);
      for (int64_t i = 0; i < k.mr; ++i)
        for (int64_t j = 0; j < stride; ++j) {
          const auto at = static_cast<size_t>(i * stride + j);
          double expected = add || j >= k.nr ? double(start[at]) : 0,
                 scale = std::abs(expected) + 1;
          for (int64_t d = 0; d < depth && j < k.nr; ++d) {
            const double term = double(a[size_t(d * k.mr + i)]) * double(b[size_t(d * k.nr + j)]);
            expected += term;
            scale += std::abs(term);
          }
          CHECK(j < k.nr ? near(c[at], expected, scale) : c[at] == before[at]);
        }
    }
  }
}

void packing(const Kernels& k) {
  for (int64_t depth : {1, 5, 16, 37})
    for (int64_t count : {int64_t{1}, k.nr - 1, k.nr}) {
      const int64_t stride = depth + 3;
      const auto rows = numbers(k.nr * stride);
      std::vector<uint16_t> half(rows.size());
      for (size_t i = 0; i < half.size(); ++i) half[i] = uint16_t(i * 37 % 0x7c00);
      std::vector<float> out(size_t(k.nr * depth)), out_half(out);
      k.pack_b(rows.data(), stride, count, depth, out.data());
      k.pack_b_half(half.data(), stride, count, depth, out_half.data());
      for (int64_t d = 0; d < depth; ++d)
        for (int64_t i = 0; i < k.nr; ++i) {
          const auto at = size_t(d * k.nr + i), from = size_t(i * stride + d);
          CHECK(out[at] == (i < count ? rows[from] : 0.0f));
          CHECK(double(out_half[at]) == (i < count ? half_value(half[from]) : 0));
        }
    }
}

// Columns of a matrix whose rows run along the depth: fewer than nr, as many, and more.
void slicing(const Kernels& k) {
  for (int64_t depth : {1, 5, 37})
    for (int64_t count : {int64_t{1}, k.nr - 1, k.nr, k.nr + 1, 3 * k.nr}) {
      const int64_t stride = 3 * k.nr + 2, panels = (count + k.nr - 1) / k.nr;
      const auto table = numbers(depth * stride);
      std::vector<uint16_t> half(table.size());
      for (size_t i = 0; i < half.size(); ++i) half[i] = uint16_t(i * 37 % 0x7c00);
      std::vector<float> out(size_t(panels * k.nr * depth)), out_half(out);
      k.slice_b(table.data(), stride, count, depth, out.data());
      k.slice_b_half(half.data(), stride, count, depth, out_half.data());
      for (int64_t d = 0; d < depth; ++d)
        for (int64_t j = 0; j < panels * k.nr; ++j) {
          const auto at = size_t((j / k.nr * depth + d) * k.nr + j % k.nr);
          const auto from = size_t(d * stride + j);
          CHECK(out[at] == (j < count ? table[from] : 0.0f));
          CHECK(double(out_half[at]) == (j < count ? half_value(half[from]) : 0));
        }
    }
}

void packing_rows(const Kernels& k) {
  for (int64_t depth : {1, 11, 16, 32, 37})
    for (int64_t count : {int64_t{2}, k.mr}) {
      const auto numbers_of_rows = numbers(k.mr * depth);
      std::vector<const float*> rows;  // in no particular order
      for (int64_t i = 0; i < k.mr; ++i)
        rows.push_back(numbers_of_rows.data() + (i * 5 + 3) % k.mr * depth);
      constexpr float kOthers = 7.0f;  // what follows belongs to somebody else
      std::vector<float> out(size_t(k.mr * depth + 16), kOthers);
      k.pack_a(rows.data(), count, depth, out.data());
      for (int64_t d = 0; d < depth; ++d)
        for (int64_t i = 0; i < k.mr; ++i)
          CHECK(out[size_t(d * k.mr + i)] == (i < count ? rows[size_t(i)][d] : 0.0f));
      for (auto at = size_t(k.mr * depth); at < out.size(); ++at) CHECK(out[at] == kOthers);
    }
}

// Several rows at once give the bits that each gives on its own.
void dots(const Kernels& k) {
  for (int64_t count : {1, 15, 64, 130, 1024}) {
    const auto x = numbers(count), y = numbers(9 * count);
    std::vector<uint16_t> half(y.size());
    for (size_t i = 0; i < half.size(); ++i) half[i] = uint16_t(i * 37 % 0x7c00);
    const void *rows[9], *halves[9];
    for (int64_t r = 0; r < 9; ++r) {
      rows[r] = y.data() + (8 - r) * count;
      halves[r] = half.data() + r * count;
    }
    for (int64_t together = 0; together <= 9; ++together) {
      float out[10] = {}, out_half[10] = {};
      k.dots(x.data(), rows, together, count, out);
      k.dots_half(x.data(), halves, together, count, out_half);
      for (int64_t r = 0; r < together; ++r) {
        CHECK(out[r] == k.dot(x.data(), static_cast<const float*>(rows[r]), count));
        CHECK(out_half[r] == k.dot_half(x.data(), static_cast<const uint16_t*>(halves[r]), count));
      }
      CHECK(out[together] == 0 && out_half[together] == 0);
    }
  }
}

void sums(const Kernels& k) {
  for (int64_t count : {1, 15, 16, 17, 63, 64, 130, 1024}) {
    const auto x = numbers(count), y = numbers(count);
    double dot = 0, squares = 0, scale = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      dot += double(x[i]) * double(y[i]);
      squares += double(x[i]) * double(x[i]);
      scale += std::abs(double(x[i]) * double(y[i]));
    }
    CHECK(near(k.dot(x.data(), y.data(), count), dot, scale));
    CHECK(near(k.squares(x.data(), count), squares, 1e-6 * squares));
    CHECK(k.chord(x.data(), 0.5, x.data(), 0.5, count) == 0);
    CHECK(near(k.chord(x.data(), 2, y.data(), 0, count), 4 * squares, squares));
    const auto z = numbers(count);
    const float weights[] = {0.5f, 2.0f};
    const void* rows[] = {x.data(), z.data()};
    auto drift = y, moved = y;
    k.pull({2, weights, rows}, 3.0f, moved.data(), count, drift.data(), moved.data());
    for (size_t i = 0; i < x.size(); ++i) {
      const double pulled = 0.5 * double(x[i]) + 2 * double(z[i]);
      CHECK(near(drift[i], pulled - 2.5 * double(y[i]), 10));
      CHECK(near(moved[i], pulled + 3 * double(y[i]), 10));
    }
    auto bad = x;
    bad.back() = std::numeric_limits<float>::quiet_NaN();
    CHECK(std::isnan(k.squares(bad.data(), count)));
    bad.back() = -std::numeric_limits<float>::infinity();
    CHECK(std::isinf(k.squares(bad.data(), count)));
  }
}

void searching(const Kernels& k) {
  const auto scales = numbers(2 * kBlock), values = numbers(2 * kBlock);
  std::vector<float> out(values.size());
  float maxima[2];
  k.scale(values.data(), 3.0f, scales.data(), 2 * kBlock, out.data(), maxima);
  for (int64_t b = 0; b < 2; ++b) {
    float most = -INFINITY;
    uint64_t bits = 0;
    for (int64_t j = 0; j < kBlock; ++j) {
      const auto at = size_t(b * kBlock + j);
      CHECK(out[at] == values[at] * 3.0f * scales[at]);
      most = std::max(most, out[at]);
      bits |= uint64_t(out[at] >= out[5]) << j;
    }
    CHECK(maxima[b] == most);
    CHECK(k.at_least(out.data() + b * kBlock, out[5]) == bits);
  }
  for (int64_t count : {1, 3, 16, 17, 64, 100})
    for (int64_t place = 0; place < count; ++place) {
      std::vector<float> flat(size_t(count), -2.0f);
      flat[size_t(place)] = flat.back() = -1.0f;  // a tie: the lower index wins
      CHECK(k.argmax(flat.data(), count) == place);
    }
  const std::vector<float> nothing(70, -INFINITY);
  CHECK(k.argmax(nothing.data(), 70) == 0);
}

// Sums in float64 of products that are added up in float32, kSumDepth at a time.
void sums_of_products(const Kernels& k) {
  for (int64_t depth : {1, 7, 128, 129, 300}) {
    const int64_t stride = k.nr + 5;
    const auto a = numbers(depth * k.mr), b = numbers(depth * k.nr);
    std::vector<float> product(size_t(k.mr * stride));
    std::vector<double> sums(product.size(), 0.25), expected(sums);
    for (int64_t from = 0; from < depth; from += anoco::kSumDepth) {
      const int64_t some = std::min(anoco::kSumDepth, depth - from);
      k.multiply(some, a.data() + from * k.mr, b.data() + from * k.nr, product.data(), stride,
                 false);
      for (size_t at = 0; at < sums.size(); ++at) expected[at] += double(product[at]);
    }
    k.multiply_sum(depth, a.data(), b.data(), sums.data(), stride);
    CHECK(sums == expected);
  }
}

// The weights of several rows with many neighbors at once.
void weights(const Kernels& k) {
  constexpr float kViolators[] = {-INFINITY, 0.0f, INFINITY};
  for (int64_t count : {1, 5, 64, 65, 300})
    for (int64_t rows = 1; rows <= anoco::kDenseTogether; ++rows) {
      auto norms = numbers(count);
      for (float& norm : norms) norm = std::abs(norm) + 0.1f;
      std::vector<std::vector<float>> s, before;
      std::vector<float*> each;
      std::vector<anoco::WeightRule> rules;
      for (int64_t r = 0; r < rows; ++r) {
        s.push_back(numbers(count));
        rules.push_back({3.0 + double(r), 0.05, kViolators[r % 3], (count / 2 + r) % count});
      }
      before = s;
      for (auto& row : s) each.push_back(row.data());
      std::vector<anoco::WeightSum> got(size_t(rows), anoco::WeightSum{-1, -1});
      k.weigh(each.data(), rules.data(), rows, norms.data(), count, got.data());
      for (size_t r = 0; r < got.size(); ++r) {
        double sum = 0;
        int64_t neighbors = 0;
        for (size_t j = 0; j < norms.size(); ++j) {
          const double norm = double(norms[j]), own = rules[r].norm;
          const bool counts = before[r][j] > rules[r].violator || int64_t(j) == rules[r].anchor;
          const double weight =
              std::max(double(before[r][j]), 0.05) * 2 * own * norm / (own + norm);
          CHECK(s[r][j] == (counts ? float(weight) : 0.0f));
          if (counts) sum += weight;
          neighbors += counts ? 1 : 0;
        }
        CHECK(got[r].sum == sum && got[r].neighbors == neighbors);
      }
    }
}

// The energies of several such rows; the last has no direction.
void changes(const Kernels& k) {
  constexpr double kWeights = 3, kLambda = 0.5, kStiffness = kWeights + kLambda;
  for (int64_t count : {1, 63, 64, 130})
    for (int64_t rows = 1; rows <= anoco::kDenseTogether; ++rows) {
      std::vector<std::vector<float>> q, pull;
      std::vector<anoco::DenseSum> sums;
      for (int64_t r = 0; r < rows; ++r) {
        q.push_back(numbers(count));
        pull.push_back(numbers(count));
        if (r + 1 == rows)
          for (size_t c = 0; c < pull.back().size(); ++c) pull.back()[c] = -q.back()[c] / 2;
      }
      for (size_t r = 0; r < q.size(); ++r)
        sums.push_back({q[r].data(), pull[r].data(), kWeights, kLambda,
                        std::sqrt(k.squares(q[r].data(), count))});
      std::vector<anoco::DenseChange> got(size_t(rows), anoco::DenseChange{-1, -1, false});
      k.solve_dense(sums.data(), rows, count, got.data());
      CHECK(!got.back().has_direction);
      for (size_t r = 0; r + 1 < q.size(); ++r) {
        double drift = 0, moved = 0, chord = 0;
        const auto f = [&](size_t c) {
          return (kLambda * double(q[r][c]) + double(pull[r][c])) / kStiffness;
        };
        for (size_t c = 0; c < q[r].size(); ++c) {
          drift += std::pow((double(pull[r][c]) - kWeights * double(q[r][c])) / kStiffness, 2);
          moved += f(c) * f(c);
        }
        for (size_t c = 0; c < q[r].size(); ++c)
          chord += std::pow(f(c) / std::sqrt(moved) - double(q[r][c]) / sums[r].norm, 2);
        CHECK(got[r].has_direction && near(got[r].drift_squares, drift, 1e-6 * drift));
        CHECK(near(got[r].chord, chord, 1e-6));
      }
    }
}

void all(const Kernels& k) {
  std::printf("%s\n", k.name);
  halves(k);
  multiplication(k);
  packing(k);
  slicing(k);
  packing_rows(k);
  sums(k);
  dots(k);
  searching(k);
  sums_of_products(k);
  weights(k);
  changes(k);
}

}  // namespace

int main() {
  for (int rank = 0; rank < anoco::kTables; ++rank)
    if (const Kernels* table = anoco::kernels_by_rank(rank)) all(*table);
  return 0;
}
