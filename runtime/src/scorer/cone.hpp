// Which references are neighbors of an anchor for certain, from one angle each.
//
// Let v be a stored axis (the mean direction of the bank; any axis gives correct statements) and
// t(r) the angle between a reference and v. Angles obey the triangle inequality, so for an anchor a
//
//   angle(a, r) <= t(a) + t(r),   hence   cos(a, r) >= cos(t(a) + t(r)) > s*
//
// if t(r) < acos(s*) - t(a), which is called the reach of the anchor at s*. Where a query resembles
// nothing, s* is low and the reach wide: if it covers the whole bank, every reference is a
// neighbor, and none of the products of the anchor with the bank is needed.
//
// Rounding: a computed similarity, and a computed cos t(r), is off by at most g(n(d)) of
// projection.hpp; |v| is computed in float64. Both cosines are therefore moved by 2 g(n(d)) to the
// safe side before their angles are taken, and angles, which are at most 3.2 and rounded to
// float32, by kAngleSlack. So what is within reach passes the test a_ij > s* with the product of
// any of our kernels.
#pragma once

#include <cstdint>

#include "buffer.hpp"

namespace anoco {

class Bank;

class Cone {
 public:
  Cone() = default;
  explicit Cone(const Bank& bank);

  // Returns the angle within which references are neighbors of this anchor for certain; below 0 if
  // there is none.
  float reach(int64_t anchor, float similarity) const;
  // Returns the angle between a reference and the axis.
  float angle(int64_t reference) const { return angles_[reference]; }
  // Return the largest angle of the bank, and of kBlock references.
  float widest() const { return widest_; }
  float widest(int64_t block) const { return of_blocks_[block]; }

 private:
  Buffer<float> angles_, of_blocks_;
  double slack_ = 0;
  float widest_ = 0;
};

}  // namespace anoco
