// What tensor cores need, without the headers of the toolkit: products of fragments, matrices from
// shared memory to registers, and copies to shared memory that go on while a warp computes. The
// emulation (tests/simt) does the same by arithmetic.
//
// A device of capability 7.5 multiplies half as deep, which is done twice, and copies at once.
#pragma once

#include "gpu_kernels.h"
#include "half.cuh"
#include "reduce.cuh"

enum { kPiece = ANOCO_GPU_PIECE };  // numbers of half precision that are copied at a time

struct alignas(16) Piece {
  half_bits at[kPiece];
};

// The fragments of a lane, as the PTX manual has them: of 16 x 16 numbers of rows, of 8 columns of
// 16 numbers, and of their 16 x 8 sums. Lane l has the sums of row l / 4 (0 and 1) and of the row 8
// below (2 and 3), of the columns 2 (l % 4) and the next.
struct RowFragment {
  unsigned at[4];
};
struct ColumnFragment {
  unsigned at[2];
};
struct SumFragment {
  float at[4];
};

#ifdef __CUDACC__
static __device__ __forceinline__ void multiply_add(SumFragment& sums, const RowFragment& a,
                                                    const ColumnFragment& b) {
#if __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums.at[0]), "+f"(sums.at[1]), "+f"(sums.at[2]), "+f"(sums.at[3])
      : "r"(a.at[0]), "r"(a.at[1]), "r"(a.at[2]), "r"(a.at[3]), "r"(b.at[0]), "r"(b.at[1]));
#else
#pragma unroll
  for (int part = 0; part < 2; ++part)
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
        "{%0, %1, %2, %3};"
        : "+f"(sums.at[0]), "+f"(sums.at[1]), "+f"(sums.at[2]), "+f"(sums.at[3])
        : "r"(a.at[2 * part]), "r"(a.at[2 * part + 1]), "r"(b.at[part]));
#endif
}

// Loads four matrices of 8 x 8 numbers, of which lane l gives the row l % 8 of the matrix l / 8.
static __device__ __forceinline__ void load_matrices(unsigned (&to)[4], const Piece* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"((unsigned)__cvta_generic_to_shared(row))
               : "memory");
}

// The same of the matrices turned over: a lane gets two neighboring numbers of a column.
static __device__ __forceinline__ void load_transposed(unsigned (&to)[4], const Piece* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"((unsigned)__cvta_generic_to_shared(row))
               : "memory");
}

// Begins to copy a piece to shared memory, or to fill it with zeros, which have a source, too.
static __device__ __forceinline__ void copy_async(Piece* to, const Piece* from, bool zeros) {
#if __CUDA_ARCH__ >= 800
  asm volatile(
      "cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((unsigned)__cvta_generic_to_shared(to)),
      "l"(from), "r"(zeros ? 0 : 16)
      : "memory");
#else
  Piece piece = {};
  if (!zeros) piece = *from;
  *to = piece;
#endif
}

// Ends a group of copies of this thread.
static __device__ __forceinline__ void commit_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits for all groups of this thread but the last `kGoingOn`.
template <int kGoingOn>
static __device__ __forceinline__ void wait_for_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(kGoingOn) : "memory");
#endif
}
static __device__ __forceinline__ unsigned load_word(const half_bits* two) {
  return *(const unsigned*)two;
}
#else
static inline void multiply_add(SumFragment& sums, const RowFragment& a, const ColumnFragment& b) {
  simt::multiply_add(sums.at, a.at, b.at);
}
static inline void load_matrices(unsigned (&to)[4], const Piece* row) {
  simt::load_matrices(to, row);
}
static inline void load_transposed(unsigned (&to)[4], const Piece* row) {
  simt::load_transposed(to, row);
}
static inline void copy_async(Piece* to, const Piece* from, bool zeros) {
  simt::copy_async(to, zeros ? nullptr : from, sizeof(Piece));
}
static inline void commit_copies() { simt::commit_copies(); }
template <int kGoingOn>
static inline void wait_for_copies() {
  simt::wait_for_copies(kGoingOn);
}
static inline unsigned load_word(const half_bits* two) {
  return (unsigned)two[1].bits << 16 | two[0].bits;
}
#endif

// Two neighboring numbers of a row as one register, zeros beyond its end. `first` is even.
static __device__ __forceinline__ unsigned load_two(const half_bits* row, int first, int dim) {
  if (dim % 2 == 0) return first < dim ? load_word(row + first) : 0;
  const unsigned low = first < dim ? row[first].bits : 0;
  const unsigned high = first + 1 < dim ? row[first + 1].bits : 0;
  return high << 16 | low;
}
