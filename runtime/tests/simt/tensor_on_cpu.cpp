#include "tensor_on_cpu.hpp"

#include <cstring>
#include <deque>
#include <vector>

#include "block.hpp"

namespace simt {
namespace {

constexpr unsigned kAll = 0xffffffffu;

struct Copy {
  void* to;
  const void* from;
  unsigned bytes;
};

// The groups of copies of a thread, the open one last. They belong to one block.
struct Copies {
  unsigned block = 0;
  std::deque<std::vector<Copy>> groups;
};

Copies copies[kMostThreads];

std::deque<std::vector<Copy>>& own_groups() {
  Copies& own = copies[thread()];
  if (own.block != block_number()) {
    own.block = block_number();
    own.groups.assign(1, {});
  }
  return own.groups;
}

uint64_t pair(unsigned low, unsigned high) { return uint64_t{high} << 32 | low; }

// 16 numbers of a row of a, or of a column of b, lie in four lanes: the t-th has the numbers 2 t
// and 2 t + 1, and those 8 further.
void take(const uint64_t* lanes, double (&numbers)[16]) {
  for (int t = 0; t < 4; ++t)
    for (const int k : {0, 1, 8, 9})
      numbers[2 * t + k] = double(widen(uint16_t(lanes[t] >> (16 * (k % 8 + k / 8 * 2)))));
}

}  // namespace

void multiply_add(float (&sums)[4], const unsigned (&a)[4], const unsigned (&b)[2], int line) {
  double left[2][16], right[2][16];
  for (const int down : {0, 1}) {
    const uint64_t* given = meet("mma", kAll, pair(a[down], a[down + 2]), line);
    take(given + lane() / 4 * 4, left[down]);
  }
  const uint64_t* given = meet("mma", kAll, pair(b[0], b[1]), line);
  for (const int side : {0, 1}) take(given + 4 * (lane() % 4 * 2 + side), right[side]);
  for (int c = 0; c < 4; ++c) {
    double sum = double(sums[c]);
    for (int k = 0; k < 16; ++k) sum += left[c / 2][k] * right[c % 2][k];
    sums[c] = float(sum);
  }
}

void load_matrices(unsigned (&to)[4], const void* row, int line) {
  const uint64_t* rows = meet("ldmatrix", kAll, uint64_t(reinterpret_cast<uintptr_t>(row)), line);
  const char* from[4];
  for (int m = 0; m < 4; ++m) from[m] = reinterpret_cast<const char*>(rows[8 * m + lane() / 4]);
  for (int m = 0; m < 4; ++m) std::memcpy(&to[m], from[m] + 4 * (lane() % 4), 4);
}

void load_transposed(unsigned (&to)[4], const void* row, int line) {
  const uint64_t* rows =
      meet("ldmatrix.trans", kAll, uint64_t(reinterpret_cast<uintptr_t>(row)), line);
  for (int m = 0; m < 4; ++m) {
    uint16_t two[2];
    for (int k = 0; k < 2; ++k) {
      const auto* from = reinterpret_cast<const char*>(rows[8 * m + 2 * (lane() % 4) + k]);
      std::memcpy(&two[k], from + 2 * (lane() / 4), sizeof two[k]);
    }
    std::memcpy(&to[m], two, sizeof two);
  }
}

void copy_async(void* to, const void* from, unsigned bytes) {
  std::memset(to, 0xff, bytes);
  own_groups().back().push_back({to, from, bytes});
}

void commit_copies() { own_groups().emplace_back(); }

void wait_for_copies(unsigned going_on) {
  auto& all = own_groups();
  while (all.size() > going_on + 1) {
    for (const Copy& copy : all.front()) {
      if (copy.from == nullptr)
        std::memset(copy.to, 0, copy.bytes);
      else
        std::memcpy(copy.to, copy.from, copy.bytes);
    }
    all.pop_front();
  }
}

}  // namespace simt
