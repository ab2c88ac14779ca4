// Runs the scoring kernels one after the other, as the host does (src/gpu/scorer.cpp).
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "reference.hpp"

namespace simt {

std::vector<uint16_t> halves_of(const std::vector<float>& numbers);
void round_to_half(std::vector<float>& numbers);

struct Result {
  std::vector<float> q_norm, r_norm, best, energy;
  std::vector<int> anchor, neighbors;
  int dense = 0;  // rows
  // Below it rows may decide otherwise than the reference: of float32 and of FP16 features (DESIGN
  // section 3), or of parts (cuda/parts.cu).
  double eps = 2e-6;

  explicit Result(const reference::Problem& p)
      : q_norm(size_t(p.rows)),
        r_norm(size_t(p.refs)),
        best(q_norm),
        energy(q_norm),
        anchor(size_t(p.rows)),
        neighbors(anchor) {}

  bool same_bits(const Result& other) const {
    const auto same = [](const auto& a, const auto& b) {
      return std::memcmp(a.data(), b.data(), a.size() * sizeof a[0]) == 0;
    };
    return same(best, other.best) && same(energy, other.energy) && same(anchor, other.anchor) &&
           same(neighbors, other.neighbors);
  }
};

// What computes products: somebody else, or the kernels of products.cu and qr_top2.cu.
enum class Products { given, own };

// What is multiplied: plain float32, FP16 features, or float32 as parts of half precision.
enum class Factors { plain, half, parts };

// Parts are what float32 is multiplied as by default; a problem is rounded for half, so that is
// last.
using ManyFactors = std::vector<Factors>;
inline const ManyFactors kDefaultFactors = {Factors::parts, Factors::half};
inline const ManyFactors kAllFactors = {Factors::plain, Factors::parts, Factors::half};

// Rows as the parts of half precision that are multiplied.
struct Parts {
  std::vector<uint16_t> rows;
  std::vector<float> norms;
  int dim = 0;  // of a row
};

Parts parts_of(const std::vector<float>& rows, const std::vector<float>& norms, int dim,
               bool of_bank);

// Runs all kernels, with the bank's Gram matrix if `gram`.
Result emulate(const reference::Problem& p, Factors factors, bool gram,
               Products products = Products::given);

// Runs the kernels after norms and products with the given products, which need not be those of the
// features, and norms of 1. `gram` may be empty.
Result scores_of(const reference::Problem& p, const std::vector<float>& products,
                 const std::vector<float>& gram);

}  // namespace simt
