// Upper bounds on similarities from products of numbers that were rounded to bfloat16, which some
// processors compute twice as fast as products of float32.
//
// Let q be a query and r a reference, Q and R the same rounded number by number, x = q/|q|,
// y = r/|r|, X = Q/|q| and Y = R/|r|, and e = |x - X| and f = |y - Y| the lengths of the rounding
// errors. Then, exactly,
//
//   x.y = X.Y + X.(y - Y) + (x - X).y  <=  X.Y + (1 + e) f + e,
//
// by Cauchy-Schwarz, because |y| = 1 and |X| <= |x| + e = 1 + e.
//
// The errors. Rounding to bfloat16 leaves 8 of 24 bits, so a number and its rounded neighbor differ
// by less than 2^-8 of it, and their difference is a float32: it is computed without an error.
// The sum of their squares in float32 is a chain of n(d) = d/16 + 16 fused additions of positive
// terms, hence off by less than 2 n u of it (u = 2^-24, n u < 0.1), and its root times the rounded
// 1/|q| by less than (n + 4) u; the stored error is larger by 2 (n + 8) u of it. e, f < 2^-8.
//
// Rounding of what is computed. u and g(n) = n u / (1 - n u) are those of projection.hpp, and with
// them its statement that a computed similarity is off by at most g(kDepth + d/16 + 16).
//
//   products: two numbers of 8 bits have a product that fits in a float32. Every instruction adds
//             two of them; whether it rounds once or twice, to the nearest or towards zero, each
//             addition is off by at most 2u of its result. There are d + 1 of them for an odd d, so
//             the computed Q.R is off by at most g(2 (d + 2)) |Q| |R|, and |Q| |R| <= 1.01 |q| |r|;
//   scales:   1/|q| and 1/|r| are rounded, and so are both products with them: 4 u |X.Y| at most;
//   sum:      two more additions and a product, of numbers below 1.1: 4 u at most.
//
// The sum of these is the allowance, 1.3e-4 + 2e-5 for d = 1024; e + f is about 3e-3. So what is
// computed is never below the similarity that any of our kernels computes. Numbers below 1e-38,
// which the instructions take for zero, and squares of errors that vanish, are together below
// 1e-16 of a norm (1e-10 or more), far less than the u that is added for them.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/kernels.hpp"

namespace anoco {

// Pairs of rounded numbers in a row.
inline int64_t rounded_pairs(int64_t dim) { return (dim + 1) / 2; }

// Returns e from the sum of the squared errors.
inline float rounding_error(float squares, float inverse_norm, int64_t dim) {
  constexpr double kRoundoff = 1.0 / (1 << 24);
  const double slack = 2 * kRoundoff * double(dim / 16 + 24);
  return float(std::sqrt(double(squares)) * double(inverse_norm) * (1 + slack));
}

// Returns what has to be added to a bound beside the errors of rounding both rows.
inline float rounding_allowance(int64_t dim) {
  constexpr double kRoundoff = 1.0 / (1 << 24);
  const auto off = [](double terms) { return terms * kRoundoff / (1 - terms * kRoundoff); };
  return float(1.01 * off(2 * double(dim + 2)) + off(double(kDepth + dim / 16 + 16)) +
               16 * kRoundoff);
}

}  // namespace anoco
