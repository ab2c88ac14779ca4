// Every instruction that computes against its definition in C++, over random and extreme numbers.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "half.hpp"
#include "machine.hpp"

namespace {

using ptx::bits_of;
using ptx::float_of;
using ptx::run_lines;
using ptx::Words;

std::mt19937 generator(3);

Words numbers(size_t count) {
  const uint32_t extreme[] = {0,          1,          2,          31,         32,
                              33,         0x7fffffff, 0x80000000, 0xffffffff, 0xffffff80,
                              0x3f800000, 0xbf800000, 0x7f800000, 0xff800000, 0x7fc00000,
                              0x00000001, 0x4b000000, 0x3c003800};
  Words out(count);
  for (uint32_t& x : out)
    x = generator() % 2 == 0 ? extreme[generator() % 18] : uint32_t(generator());
  return out;
}

using Expected = std::function<uint32_t(uint32_t, uint32_t, uint32_t)>;

// %r1, %r2, %r3 (and %f1 to %f3 with the same bits) are a, b, c; the result is %r4 or %f4.
void check(const std::string& lines, const Expected& expected) {
  for (int round = 0; round < 8; ++round) {
    const Words in = numbers(96);
    const Words out = run_lines(
        "ld.global.u32 %r1, [%rd3];\nld.global.u32 %r2, [%rd3+128];\nld.global.u32 %r3, "
        "[%rd3+256];\n"
        "mov.b32 %f1, %r1;\nmov.b32 %f2, %r2;\nmov.b32 %f3, %r3;\n" +
            lines + "\nst.global.u32 [%rd2], %r4;",
        in);
    for (size_t l = 0; l < 32; ++l) {
      const uint32_t want = expected(in[l], in[l + 32], in[l + 64]);
      if (out[l] == want) continue;
      std::fprintf(stderr, "%s\n%08x, %08x, %08x: %08x, expected %08x\n", lines.c_str(), in[l],
                   in[l + 32], in[l + 64], out[l], want);
      std::exit(1);
    }
  }
}

int32_t s(uint32_t x) { return int32_t(x); }
bool is_nan(uint32_t x) { return std::isnan(float_of(x)); }

void integers() {
  check("add.s32 %r4, %r1, %r2;", [](auto a, auto b, auto) { return a + b; });
  check("sub.u32 %r4, %r1, %r2;", [](auto a, auto b, auto) { return a - b; });
  check("mul.lo.s32 %r4, %r1, %r2;", [](auto a, auto b, auto) { return a * b; });
  check("mul.hi.s32 %r4, %r1, %r2;",
        [](auto a, auto b, auto) { return uint32_t(int64_t(s(a)) * s(b) >> 32); });
  check("mul.hi.u32 %r4, %r1, %r2;",
        [](auto a, auto b, auto) { return uint32_t(uint64_t(a) * b >> 32); });
  check("mad.lo.s32 %r4, %r1, %r2, %r3;", [](auto a, auto b, auto c) { return a * b + c; });
  check("mul.wide.s32 %rd4, %r1, %r2;\nshr.u64 %rd5, %rd4, 16;\ncvt.u32.u64 %r4, %rd5;",
        [](auto a, auto b, auto) { return uint32_t(uint64_t(int64_t(s(a)) * s(b)) >> 16); });
  check("div.u32 %r4, %r1, %r2;", [](auto a, auto b, auto) { return b == 0 ? ~0u : a / b; });
  check("rem.s32 %r4, %r1, 7;", [](auto a, auto, auto) { return uint32_t(s(a) % 7); });
  check("div.s32 %r4, %r1, -1;", [](auto a, auto, auto) { return 0u - a; });
  check("min.s32 %r4, %r1, %r2;",
        [](auto a, auto b, auto) { return uint32_t(std::min(s(a), s(b))); });
  check("max.u32 %r4, %r1, %r2;", [](auto a, auto b, auto) { return std::max(a, b); });
  check("abs.s32 %r4, %r1;", [](auto a, auto, auto) { return s(a) < 0 ? 0u - a : a; });
  check("neg.s32 %r4, %r1;", [](auto a, auto, auto) { return 0u - a; });
  check("sad.u32 %r4, %r1, %r2, %r3;",
        [](auto a, auto b, auto c) { return c + (a > b ? a - b : b - a); });
  check("dp4a.s32.s32 %r4, %r1, %r2, %r3;", [](auto a, auto b, auto c) {
    for (int k = 0; k < 32; k += 8) c += uint32_t(int8_t(a >> k) * int8_t(b >> k));
    return c;
  });
}

void bits() {
  check("and.b32 %r4, %r1, %r2;", [](auto a, auto b, auto) { return a & b; });
  check("not.b32 %r4, %r1;", [](auto a, auto, auto) { return ~a; });
  check("shl.b32 %r4, %r1, %r2;", [](auto a, auto b, auto) { return b > 31 ? 0 : a << b; });
  check("shr.u32 %r4, %r1, %r2;", [](auto a, auto b, auto) { return b > 31 ? 0 : a >> b; });
  check("shr.s32 %r4, %r1, %r2;",
        [](auto a, auto b, auto) { return uint32_t(s(a) >> std::min(b, 31u)); });
  check("popc.b32 %r4, %r1;", [](auto a, auto, auto) { return uint32_t(__builtin_popcount(a)); });
  check("clz.b32 %r4, %r1;",
        [](auto a, auto, auto) { return a == 0 ? 32u : uint32_t(__builtin_clz(a)); });
  check("bfind.u32 %r4, %r1;",
        [](auto a, auto, auto) { return a == 0 ? ~0u : 31u - uint32_t(__builtin_clz(a)); });
  check("brev.b32 %r5, %r1;\nbrev.b32 %r4, %r5;", [](auto a, auto, auto) { return a; });
  check("bfe.u32 %r4, %r1, 5, 9;", [](auto a, auto, auto) { return a >> 5 & 511; });
  check("bfe.s32 %r4, %r1, 5, 9;", [](auto a, auto, auto) { return uint32_t(s(a << 18) >> 23); });
  check("bfi.b32 %r4, %r1, %r2, 4, 8;",
        [](auto a, auto b, auto) { return (b & ~0xff0u) | (a & 255) << 4; });
  check("lop3.b32 %r4, %r1, %r2, %r3, 0xE8;",
        [](auto a, auto b, auto c) { return (a & b) | (a & c) | (b & c); });
  check("shf.l.wrap.b32 %r4, %r1, %r2, %r3;", [](auto a, auto b, auto c) {
    c &= 31;
    return c == 0 ? b : b << c | a >> (32 - c);
  });
  check("shf.r.clamp.b32 %r4, %r1, %r2, %r3;", [](auto a, auto b, auto c) {
    return c >= 32 ? b : c == 0 ? a : a >> c | b << (32 - c);
  });
  check("prmt.b32 %r4, %r1, %r2, 0x7A10;", [](auto a, auto b, auto) {
    return (a & 0xffff) | ((a >> 23 & 1) != 0 ? 0xff0000u : 0u) | (b & 0xff000000u);
  });
  check("mov.b32 {%h1, %h2}, %r1;\nmov.b32 %r4, {%h2, %h1};",
        [](auto a, auto, auto) { return a << 16 | a >> 16; });
  check("mov.b64 %rd4, {%r1, %r2};\nmov.b64 {_, %r4}, %rd4;", [](auto, auto b, auto) { return b; });
}

uint32_t same_nan(float x) { return std::isnan(x) ? 0x7fffffffu : bits_of(x); }

// NaNs have many forms; they are compared as one.
void check_float(const std::string& line,
                 const std::function<float(float, float, float)>& expected) {
  check(line +
            "\nsetp.nan.f32 %p1, %f4, %f4;\nmov.b32 %r5, %f4;\n"
            "selp.b32 %r4, 0x7fffffff, %r5, %p1;",
        [&](auto a, auto b, auto c) {
          return same_nan(expected(float_of(a), float_of(b), float_of(c)));
        });
}

float larger(float a, float b) { return std::isnan(a) ? b : std::isnan(b) ? a : std::fmax(a, b); }

void floats() {
  check_float("add.rn.f32 %f4, %f1, %f2;", [](float a, float b, float) { return a + b; });
  check_float("mul.f32 %f4, %f1, %f2;", [](float a, float b, float) { return a * b; });
  check_float("fma.rn.f32 %f4, %f1, %f2, %f3;",
              [](float a, float b, float c) { return std::fma(a, b, c); });
  check_float("div.rn.f32 %f4, %f1, %f2;", [](float a, float b, float) { return a / b; });
  check_float("sqrt.rn.f32 %f4, %f1;", [](float a, float, float) { return std::sqrt(a); });
  check_float("rcp.rn.f32 %f4, %f1;", [](float a, float, float) { return 1 / a; });
  check_float("neg.f32 %f4, %f1;", [](float a, float, float) { return -a; });
  check_float("max.f32 %f4, %f1, 0f00000000;", [](float a, float, float) {
    return larger(a, 0) == 0 ? 0.0f : larger(a, 0);  // 0 is above -0
  });
  check_float("max.NaN.f32 %f4, %f1, %f2;", [](float a, float b, float) {
    if (std::isnan(a) || std::isnan(b)) return NAN;
    return a == b ? (std::signbit(a) ? b : a) : std::fmax(a, b);
  });
  check_float(
      "cvt.f64.f32 %d1, %f1;\ncvt.f64.f32 %d2, %f2;\ndiv.rn.f64 %d3, %d1, %d2;\n"
      "cvt.rn.f32.f64 %f4, %d3;",
      [](float a, float b, float) { return float(double(a) / double(b)); });
  check_float("cvt.rn.f32.s32 %f4, %r1;",
              [](float a, float, float) { return float(s(bits_of(a))); });
}

void comparisons() {
  const auto flag = [](const std::string& line) { return line + "\nselp.u32 %r4, 1, 0, %p1;"; };
  check(flag("setp.lt.s32 %p1, %r1, %r2;"), [](auto a, auto b, auto) { return s(a) < s(b); });
  check(flag("setp.hs.u32 %p1, %r1, %r2;"), [](auto a, auto b, auto) { return a >= b; });
  check(flag("setp.ne.f32 %p1, %f1, %f2;"), [](auto a, auto b, auto) {
    return !is_nan(a) && !is_nan(b) && float_of(a) != float_of(b);
  });
  check(flag("setp.leu.f32 %p1, %f1, %f2;"),
        [](auto a, auto b, auto) { return !(float_of(a) > float_of(b)); });
  check(flag("setp.gt.u32 %p2, %r3, 5;\nsetp.eq.and.b32 %p1|%p3, %r1, %r2, !%p2;"),
        [](auto a, auto b, auto c) { return a == b && c <= 5; });
  check(flag("setp.gt.u32 %p2, %r3, 5;\nsetp.eq.or.b32 %p3|%p1, %r1, %r2, %p2;"),
        [](auto a, auto b, auto c) { return a != b || c > 5; });
  check(flag("setp.gt.u32 %p2, %r1, 5;\nmov.pred %p1, -1;\nxor.pred %p1, %p1, %p2;"),
        [](auto a, auto, auto) { return a <= 5; });
  check(flag("setp.lt.s32 %p1, %r1, 0;\n@%p1 setp.gt.s32 %p1, %r2, 0;"),
        [](auto a, auto b, auto) { return s(a) < 0 && s(b) > 0; });
}

void conversions() {
  check("cvt.s32.s8 %r4, %r1;", [](auto a, auto, auto) { return uint32_t(int8_t(a)); });
  check("cvt.u64.u32 %rd4, %r1;\ncvt.s32.s16 %r4, %rd4;",
        [](auto a, auto, auto) { return uint32_t(int16_t(a)); });
  check("cvt.sat.u8.s32 %r4, %r1;",
        [](auto a, auto, auto) { return uint32_t(std::clamp(s(a), 0, 255)); });
  check("cvt.rzi.s32.f32 %r4, %f1;", [](auto a, auto, auto) {
    const double x = std::trunc(float_of(a));
    return std::isnan(x) ? 0u : uint32_t(int64_t(std::clamp(x, -2147483648.0, 2147483647.0)));
  });
  // Halves there and back, and ties to even.
  check("cvt.rn.f16.f32 %h1, %f1;\ncvt.u32.u16 %r4, %h1;", [](auto a, auto, auto) {
    if (is_nan(a)) return 0x7fffu;
    const float x = std::fabs(float_of(a));
    const uint32_t sign = a >> 16 & 0x8000u;
    if (x >= 65520) return sign | 0x7c00u;
    uint32_t below = 0;  // the largest half that is not larger
    for (uint32_t bit = 0x4000; bit != 0; bit /= 2)
      if (below + bit < 0x7c00 && ptx::wide(ptx::Half{uint16_t(below + bit)}) <= x) below += bit;
    const double low = ptx::wide(ptx::Half{uint16_t(below)});
    const double high = below == 0x7bff ? 65536.0 : ptx::wide(ptx::Half{uint16_t(below + 1)});
    const double middle = (low + high) / 2;
    return sign | (x > middle || (x == middle && below % 2 == 1) ? below + 1 : below);
  });
  check("cvt.rn.f16x2.f32 %r4, 0f3F800000, 0f40000000;",
        [](auto, auto, auto) { return 0x3c004000u; });
  check(
      "mov.b32 {%h1, %h2}, 0x3c004000;\nfma.rn.f16 %h3, %h1, %h2, %h1;\ncvt.f32.f16 %f4, %h3;\n"
      "mov.b32 %r4, %f4;",
      [](auto, auto, auto) { return bits_of(4.0f); });
  check("add.f16x2 %r4, 0x3c004000, 0x3c003c00;", [](auto, auto, auto) { return 0x40004200u; });
  check("cvt.rna.tf32.f32 %r4, 0f3F801000;", [](auto, auto, auto) { return 0x3f802000u; });
}

// Lanes that take different ways give what each would give alone.
void divergence() {
  const std::string collatz =
      "ld.global.u32 %r1, [%rd3];\nmov.u32 %r4, 0;\n"
      "$loop:\nsetp.le.u32 %p1, %r1, 1;\n@%p1 bra $done;\nand.b32 %r2, %r1, 1;\n"
      "setp.eq.b32 %p2, %r2, 0;\n@%p2 bra $even;\nmad.lo.u32 %r1, %r1, 3, 1;\nbra $next;\n"
      "$even:\nshr.u32 %r1, %r1, 1;\n$next:\nadd.s32 %r4, %r4, 1;\nbra.uni $loop;\n"
      "$done:\nst.global.u32 [%rd2], %r4;";
  Words in(32);
  for (uint32_t l = 0; l < 32; ++l) in[l] = 7 * l + 1;
  for (uint64_t seed = 1; seed < 9; ++seed) {
    ptx::Options options;
    options.seed = seed;
    const Words out = ptx::run(ptx::kernel_of(collatz), in, 32, {}, options).out;
    for (size_t l = 0; l < 32; ++l) {
      uint32_t steps = 0;
      for (uint32_t x = in[l]; x > 1; ++steps) x = x % 2 == 0 ? x / 2 : 3 * x + 1;
      CHECK(out[l] == steps);
    }
  }
  const std::string table =
      "rem.u32 %r1, %r0, 3;\nbrx.idx %r1, $ways;\n$ways: .branchtargets $a, $b, $a;\n"
      "$a:\nmov.u32 %r4, 10;\nbra $end;\n$b:\nmov.u32 %r4, 20;\n$end:\nst.global.u32 [%rd2], %r4;";
  const Words out = run_lines(table);
  for (size_t l = 0; l < 32; ++l) CHECK(out[l] == (l % 3 == 1 ? 20 : 10));
}

void what_is_not_known() {
  const auto refused = [](const std::string& line, const char* message) {
    std::string said;
    try {
      ptx::Module(ptx::kernel_of(line), "test.ptx");
    } catch (const ptx::Fault& fault) {
      said = fault.what();
    }
    if (said.find(message) == std::string::npos) std::fprintf(stderr, "%s\n", said.c_str());
    CHECK(said.find(message) != std::string::npos);
  };
  refused("frobnicate.b32 %r1, %r2;", "does not know frobnicate.b32");
  refused("add.rz.f32 %f1, %f2, %f3;", "does not know add.rz.f32");
  refused("bar.sync 1, 64;", "barrier 0 of all threads only");
  refused("add.s32 %r1, %r2;", "another number of operands");
  refused("add.s32 %r1, %r2, %rd1;", "another size");
  refused("bra $nowhere;", "no label $nowhere");
  refused("add.s32 %r1, %r2, %x9;", "nothing is named %x9");
}

}  // namespace

int main() {
  integers();
  bits();
  floats();
  comparisons();
  conversions();
  divergence();
  what_is_not_known();
  return 0;
}
