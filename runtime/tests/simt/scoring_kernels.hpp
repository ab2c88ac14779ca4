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

// Runs all kernels, with FP16 features if `half`, and with the bank's Gram matrix if `gram`.
Result emulate(const reference::Problem& p, bool half, bool gram,
               Products products = Products::given);

// Runs the kernels after norms and products with the given products, which need not be those of the
// features, and norms of 1. `gram` may be empty.
Result scores_of(const reference::Problem& p, const std::vector<float>& products,
                 const std::vector<float>& gram);

}  // namespace simt
