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
// both exactly. With Cauchy-Schwarz, |p| <= 1.01 and |delta| <= D this becomes
//
//   x.y <= p.p' + rho rho' + 1.03 (eta + 2 D),   rho^2 = max(0, 1 - |p|^2) + 2.1 D + 1.1 eta.
//
// Rounding: u = 2^-24, and a sum of n products in float32, added up in any order, is off by at most
// n u / (1 - n u) times the sum of their magnitudes (Higham, section 3.1); fused multiply-adds are
// only better. No chain of ours is longer than n(d) = kDepth + d/16 + 16 (the norms and the factor
// 1/|q| are counted in), so
//
//   D       = 1.01 sqrt(k) n u         each number of p is a sum over d, |x| = |v| = 1;
//   similarity: the computed s_ij is off by at most n u;
//   bound:  the computed p.p' + rho rho' + allowance, k + 2 products in one chain, is off by at
//           most 1.1 (k + 3) u, because |p|^2 + rho^2 is within 1.01 of 1.
//
// The sum of these is the allowance, about 3e-4 for d = 1024 and k = 64. It is one more number of
// each sketch: [p, rho, 1] of a query times [p', rho', allowance] of a reference. So what is
// computed is never below the similarity that any of our kernels computes, and what is left out
// because of it could not have been found.
#pragma once

#include <cstdint>

#include "buffer.hpp"
#include "kernels/kernels.hpp"

namespace anoco {

class Bank;

class Projection {
 public:
  Projection() = default;
  Projection(const Bank& bank, int64_t directions);

  // How many directions pay for a bank of this size; 0 where none do.
  static int64_t choose(int64_t rows, int64_t dim);

  explicit operator bool() const { return directions_ > 0; }
  int64_t width() const { return directions_ + 2; }  // numbers of a sketch
  int64_t products() const { return padded_; }       // numbers a row that `project` writes
  // Packed sketches of the references from `row`, a multiple of nr, on.
  const float* sketches(int64_t row) const { return sketches_.data() + row * width(); }

  // The products of mr packed rows with the basis.
  void project(const float* left, float* products) const;
  // Turns the products of a raw row into its sketch, [p, rho, last].
  void finish(const float* products, float inverse_norm, float last, float* sketch) const;

 private:
  void make_basis(const Bank& bank);
  void set_allowance(double eta);
  void sketch_bank(const Bank& bank);

  int64_t dim_ = 0, directions_ = 0, padded_ = 0;
  Buffer<float> basis_;  // packed
  Buffer<float> sketches_;
  double slack_ = 0;  // of rho^2
  float allowance_ = 0;
};

}  // namespace anoco
