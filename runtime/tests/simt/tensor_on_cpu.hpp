// What a .cu file sees in place of tensor cores and of copies that go on beside a warp.
#pragma once

#include <cstdint>

namespace simt {

// sums += a b with the fragments of mma.m16n8k16; every sum is rounded once from float64. All lanes
// of the warp must call it.
void multiply_add(float (&sums)[4], const unsigned (&a)[4], const unsigned (&b)[2],
                  int line = __builtin_LINE());

// Four matrices of 8 x 8 numbers of 16 bits, of which lane l gives the row l % 8 of matrix l / 8.
void load_matrices(unsigned (&to)[4], const void* row, int line = __builtin_LINE());
void load_transposed(unsigned (&to)[4], const void* row, int line = __builtin_LINE());

// A copy is done when its thread waits for it, and not before: until then there are 0xff bytes. It
// copies zeros from null.
void copy_async(void* to, const void* from, unsigned bytes);
void commit_copies();
void wait_for_copies(unsigned going_on);

}  // namespace simt
