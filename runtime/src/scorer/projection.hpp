// Upper bounds on similarities from k directions instead of d numbers, so that most references
// need not be multiplied in full. Any basis gives correct bounds; a good one gives tight ones.
//
// Let x = q/|q| and y = r/|r|, V the stored d x k basis, V^T V = I + E with |E| <= eta (computed in
// float64 when the basis is made), p and p' the stored float32 projections of x and y, and
// delta = V^T x - p their errors. Define e and e' by x = V p + e and y = V p' + e'. Then
//
//   x.y = p.p' - p^T E p' + p.delta' + p'.delta + e.e',
//   |e|^2 = 1 - |p|^2 - 2 p.delta + p^T E p,
//
// both exactly. With Cauchy-Schwarz, |delta| <= D and |p| <= P = sqrt(1 + eta) + D this becomes
//
//   x.y <= p.p' + rho rho' + P^2 eta + 2 P D,   rho^2 = max(0, 1 - |p|^2) + 2 P D + P^2 eta.
//
// Rounding: u = 2^-24, and a sum of n products in float32, added up in any order, is off by at most
// g(n) = n u / (1 - n u) times the sum of their magnitudes (Higham, section 3.1); fused
// multiply-adds are only better. No chain of ours is longer than n(d) = kDepth + d/16 + 16 (the
// rounded norms and the factors 1/|q| and 1/|r| are counted in), so
//
//   D = sqrt(k (1 + eta)) g(n)   each number of p is a sum over d, |x| = 1, |v|^2 <= 1 + eta;
//   similarity: the computed s_ij is off by at most g(n);
//   bound:  the computed p.p' + rho rho' + allowance is one chain over the sketch, off by at most
//           g(its length) (P^2 + slack + allowance), because |p|^2 + rho^2 <= P^2 + slack, where
//           slack = 2 P D + P^2 eta.
//
// The sum of these, slack and both roundings, is the allowance, about 3e-4 for d = 1024 and k = 64,
// 7e-4 for k = 256. So what is computed is never below the similarity that any of our kernels
// computes, and what is left out because of it could not have been found. Underflow adds nothing
// that counts: norms are 1e-10 or more, so a product that vanishes, flushed to zero or not, is
// below 1e-17 of the norms; a float16 is a float32.
//
// Few directions are cheap, many are tight. A sketch holds both: the first directions, what they
// leave, the next directions, what all of them leave. A query that uses the first ones only is
// multiplied with the beginning of the sketches. In a sketch each level adds
//
//   [p of its own directions, rho of all so far, 1 or the allowance],
//
// and a query has zeros for the rho and the allowance of the levels before its own.
#pragma once

#include <cstdint>
#include <vector>

#include "buffer.hpp"
#include "kernels/kernels.hpp"

namespace anoco {

class Bank;

class Projection {
 public:
  Projection() = default;
  Projection(const Bank& bank, int64_t directions);
  // Makes a projection for rows of the bank's dim numbers; the directions need not be orthonormal.
  Projection(const Bank& bank, int64_t directions, const float* basis);

  // Returns the number of directions that pays for a bank of this size, or 0 if none does.
  static int64_t choose(int64_t rows, int64_t dim);

  explicit operator bool() const { return !levels_.empty(); }
  int64_t levels() const { return int64_t(levels_.size()); }
  int64_t directions(int64_t level) const { return levels_[size_t(level)].directions; }
  int64_t width(int64_t level) const { return levels_[size_t(level)].width; }
  int64_t width() const { return levels_.back().width; }  // numbers of a sketch
  int64_t products() const { return padded_; }            // numbers that `project` writes for a row
  // Returns the packed sketches of the references from `row` on, a multiple of nr.
  const float* sketches(int64_t row) const { return sketches_.data() + row * width(); }

  // Computes the products of mr packed rows with the directions of a level.
  void project(int64_t level, const float* left, float* products) const;
  // Turns the products of a raw query into its sketch for a level.
  void sketch_query(int64_t level, const float* products, float inverse_norm, float* out) const {
    sketch(level, true, products, inverse_norm, out);
  }

 private:
  struct Level {
    int64_t directions, width;  // its own and those of the levels before
    double slack;               // of rho^2
    float allowance;
  };

  void set_levels(int64_t directions, double eta);
  void sketch_bank(const Bank& bank);
  void sketch(int64_t level, bool query, const float* products, float inverse_norm,
              float* out) const;

  int64_t dim_ = 0, padded_ = 0;
  std::vector<Level> levels_;
  Buffer<float> basis_;  // packed
  Buffer<float> sketches_;
};

}  // namespace anoco
