#include "agreement.hpp"

#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "tests/check.h"

namespace reference {

void compare(const char* name, const Problem& p, const simt::Result& got, double most_undecided) {
  int undecided = 0;
  for (int i = 0; i < p.rows; ++i) {
    const Patch want = solve(p, i);
    const auto at = size_t(i);
    CHECK(std::abs(got.q_norm[at] - want.norm) <= 1e-6 * want.norm);
    CHECK(std::abs(got.best[at] - want.similarity) <= got.eps);  // tensor cores cut off
    CHECK(got.neighbors[at] >= 1 && got.neighbors[at] <= p.refs);
    CHECK(got.anchor[at] >= 0 && got.anchor[at] < p.refs);
    if (want.margin <= got.eps) {
      ++undecided;
      continue;
    }
    const double off = std::abs(got.energy[at] - want.energy);
    if (got.anchor[at] == want.anchor && got.neighbors[at] == want.neighbors &&
        off <= 1e-4 * want.energy + 1e-9 * want.norm * want.norm)
      continue;
    std::fprintf(stderr, "%s, row %d: anchor %d (%d), neighbors %d (%d), energy %g (%g)\n", name, i,
                 got.anchor[at], want.anchor, got.neighbors[at], want.neighbors,
                 double(got.energy[at]), want.energy);
    std::exit(1);
  }
  CHECK(undecided <= most_undecided * p.rows);
}

}  // namespace reference
