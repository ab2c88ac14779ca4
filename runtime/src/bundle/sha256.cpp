#include "bundle/sha256.hpp"

#include <algorithm>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#elif defined(__aarch64__) && \
    !defined(__clang__)  // clang 14 has no intrinsics for one function only
#include <arm_neon.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>
#define ANOCO_ARM_SHA256
#endif

namespace anoco {
namespace {

// FIPS 180-4, 4.2.2.
alignas(16) constexpr uint32_t kRound[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

constexpr uint32_t rotated(uint32_t x, int bits) { return x >> bits | x << (32 - bits); }

uint32_t big_endian(const unsigned char* at) {
  return uint32_t{at[0]} << 24 | uint32_t{at[1]} << 16 | uint32_t{at[2]} << 8 | at[3];
}

// Computes one round; the caller rotates the names of the eight words instead of moving them.
inline void turn(uint32_t a, uint32_t b, uint32_t c, uint32_t& d, uint32_t e, uint32_t f,
                 uint32_t g, uint32_t& h, uint32_t word) {
  h += (rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25)) + (g ^ (e & (f ^ g))) + word;
  d += h;
  h += (rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22)) + ((a & b) | (c & (a | b)));
}

#if defined(__x86_64__)

bool has_instructions() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & bit_SSE4_1) == 0 || (c & bit_SSSE3) == 0)
    return false;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & bit_SHA) != 0;
}

// The instructions keep the state as (a b e f) and (c d g h) and do two rounds at a time.
__attribute__((target("sha,sse4.1,ssse3"))) void blocks_fast(uint32_t* state,
                                                             const unsigned char* data,
                                                             size_t blocks) {
  const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  auto* words = reinterpret_cast<__m128i*>(state);
  const __m128i cdab = _mm_shuffle_epi32(_mm_loadu_si128(words), 0xB1);
  const __m128i efgh = _mm_shuffle_epi32(_mm_loadu_si128(words + 1), 0x1B);
  __m128i abef = _mm_alignr_epi8(cdab, efgh, 8);
  __m128i cdgh = _mm_blend_epi16(efgh, cdab, 0xF0);
  for (; blocks > 0; --blocks, data += 64) {
    const __m128i abef_before = abef, cdgh_before = cdgh;
    __m128i w[4];
    for (int i = 0; i < 4; ++i)
      w[i] = _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(data) + i), swap);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      const __m128i now = w[i % 4];
      const __m128i sum =
          _mm_add_epi32(now, _mm_load_si128(reinterpret_cast<const __m128i*>(kRound) + i));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0E));
      if (i < 12) {
        const __m128i last = w[(i + 3) % 4];
        const __m128i part = _mm_add_epi32(_mm_sha256msg1_epu32(now, w[(i + 1) % 4]),
                                           _mm_alignr_epi8(last, w[(i + 2) % 4], 4));
        w[i % 4] = _mm_sha256msg2_epu32(part, last);
      }
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  const __m128i feba = _mm_shuffle_epi32(abef, 0x1B), dchg = _mm_shuffle_epi32(cdgh, 0xB1);
  _mm_storeu_si128(words, _mm_blend_epi16(feba, dchg, 0xF0));
  _mm_storeu_si128(words + 1, _mm_alignr_epi8(dchg, feba, 8));
}

#elif defined(ANOCO_ARM_SHA256)

bool has_instructions() { return (getauxval(AT_HWCAP) & HWCAP_SHA2) != 0; }

__attribute__((target("+crypto"))) void blocks_fast(uint32_t* state, const unsigned char* data,
                                                    size_t blocks) {
  uint32x4_t abcd = vld1q_u32(state), efgh = vld1q_u32(state + 4);
  for (; blocks > 0; --blocks, data += 64) {
    const uint32x4_t abcd_before = abcd, efgh_before = efgh;
    uint32x4_t w[4];
    for (int i = 0; i < 4; ++i) w[i] = vreinterpretq_u32_u8(vrev32q_u8(vld1q_u8(data + 16 * i)));
    for (int i = 0; i < 16; ++i) {
      const uint32x4_t sum = vaddq_u32(w[i % 4], vld1q_u32(kRound + 4 * i)), abcd_now = abcd;
      abcd = vsha256hq_u32(abcd, efgh, sum);
      efgh = vsha256h2q_u32(efgh, abcd_now, sum);
      if (i < 12)
        w[i % 4] = vsha256su1q_u32(vsha256su0q_u32(w[i % 4], w[(i + 1) % 4]), w[(i + 2) % 4],
                                   w[(i + 3) % 4]);
    }
    abcd = vaddq_u32(abcd, abcd_before);
    efgh = vaddq_u32(efgh, efgh_before);
  }
  vst1q_u32(state, abcd);
  vst1q_u32(state + 4, efgh);
}

#else

bool has_instructions() { return false; }
constexpr auto blocks_fast = sha256_blocks_portable;

#endif

}  // namespace

void sha256_blocks_portable(uint32_t* state, const unsigned char* data, size_t blocks) {
  for (; blocks > 0; --blocks, data += 64) {
    uint32_t w[64];
    for (int i = 0; i < 16; ++i) w[i] = big_endian(data + 4 * i);
    for (int i = 16; i < 64; ++i) {
      const uint32_t s0 = rotated(w[i - 15], 7) ^ rotated(w[i - 15], 18) ^ w[i - 15] >> 3;
      const uint32_t s1 = rotated(w[i - 2], 17) ^ rotated(w[i - 2], 19) ^ w[i - 2] >> 10;
      w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    for (int i = 0; i < 64; ++i) w[i] += kRound[i];
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
    for (int i = 0; i < 64; i += 8) {
      turn(a, b, c, d, e, f, g, h, w[i]);
      turn(h, a, b, c, d, e, f, g, w[i + 1]);
      turn(g, h, a, b, c, d, e, f, w[i + 2]);
      turn(f, g, h, a, b, c, d, e, w[i + 3]);
      turn(e, f, g, h, a, b, c, d, w[i + 4]);
      turn(d, e, f, g, h, a, b, c, w[i + 5]);
      turn(c, d, e, f, g, h, a, b, w[i + 6]);
      turn(b, c, d, e, f, g, h, a, w[i + 7]);
    }
    const uint32_t sums[8] = {a, b, c, d, e, f, g, h};
    for (int i = 0; i < 8; ++i) state[i] += sums[i];
  }
}

Sha256::Sha256()
    : blocks_(has_instructions() ? blocks_fast : sha256_blocks_portable),
      state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
             0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19} {}

void Sha256::update(const void* data, size_t size) {
  auto* at = static_cast<const unsigned char*>(data);
  const size_t held = length_ % 64;
  length_ += size;
  if (held > 0) {
    const size_t taken = std::min(size, 64 - held);
    std::memcpy(rest_.data() + held, at, taken);
    if (held + taken < 64) return;
    blocks_(state_.data(), rest_.data(), 1);
    at += taken;
    size -= taken;
  }
  blocks_(state_.data(), at, size / 64);
  if (size % 64 > 0) std::memcpy(rest_.data(), at + size / 64 * 64, size % 64);
}

std::string Sha256::hex() {
  const uint64_t bits = length_ * 8;
  unsigned char end[72] = {0x80};
  const size_t zeros = (119 - length_ % 64) % 64;  // up to the last eight bytes of a block
  for (int i = 0; i < 8; ++i) end[zeros + 1 + i] = static_cast<unsigned char>(bits >> (56 - 8 * i));
  update(end, zeros + 9);
  std::string out;
  for (const uint32_t word : state_)
    for (int shift = 28; shift >= 0; shift -= 4) out += "0123456789abcdef"[word >> shift & 15];
  return out;
}

std::string sha256_hex(std::string_view data) {
  Sha256 hash;
  hash.update(data.data(), data.size());
  return hash.hex();
}

}  // namespace anoco
