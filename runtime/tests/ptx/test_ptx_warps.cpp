// What lanes do together, against its definition: shuffles, votes, reductions, matrices, copies.
#include <cmath>
#include <cstring>
#include <random>

#include "half.hpp"
#include "machine.hpp"

namespace {

using ptx::bits_of;
using ptx::float_of;
using ptx::kernel_of;
using ptx::run;
using ptx::run_lines;
using ptx::TensorSums;
using ptx::Words;

std::mt19937 generator(5);

void shuffles() {
  // 31 and 0x1f: the whole warp; 0x181f: segments of 8 (up has its last lane at 0).
  for (const uint32_t c : {31u, 0u, 0x181fu, 0x1800u})
    for (const uint32_t b : {0u, 1u, 5u, 16u})
      for (const char* mode : {"up", "down", "bfly", "idx"}) {
        const Words out =
            run_lines(std::string("add.s32 %r1, %r0, 100;\nshfl.sync.") + mode +
                      ".b32 %r2|%p1, %r1, " + std::to_string(b) + ", " + std::to_string(c) +
                      ", -1;\nselp.u32 %r3, 1000, 0, %p1;\nadd.s32 %r4, %r2, %r3;\n"
                      "st.global.u32 [%rd2], %r4;");
        const int segment = int(c >> 8 & 31), clamp = int(c & 31);
        for (int l = 0; l < 32; ++l) {
          const int last = (l & segment) | (clamp & ~segment);
          const int from = mode[0] == 'u'   ? l - int(b)
                           : mode[0] == 'd' ? l + int(b)
                           : mode[0] == 'b' ? l ^ int(b)
                                            : (l & segment) | (int(b) & ~segment);
          const bool inside = mode[0] == 'u' ? from >= last : from <= last;
          CHECK(out[size_t(l)] == uint32_t(100 + (inside ? from + 1000 : l)));
        }
      }
}

void votes() {
  const Words out = run_lines(
      "setp.lt.u32 %p1, %r0, 5;\nvote.sync.ballot.b32 %r1, %p1, 0xffffffff;\n"
      "vote.sync.any.pred %p2, %p1, -1;\nvote.sync.all.pred %p3, %p1, -1;\n"
      "vote.sync.uni.pred %p4, %p1, -1;\nselp.u32 %r2, 256, 0, %p2;\nselp.u32 %r3, 512, 0, %p3;\n"
      "add.s32 %r4, %r1, %r2;\nadd.s32 %r4, %r4, %r3;\n@%p4 add.s32 %r4, %r4, 1024;\n"
      "st.global.u32 [%rd2], %r4;");
  for (const uint32_t x : out) CHECK(x == 31 + 256);
  Words in(32);
  for (uint32_t l = 0; l < 32; ++l) in[l] = l * 7919 % 64 - 20;
  const std::string redux =
      "ld.global.u32 %r1, [%rd3];\nredux.sync.add.s32 %r2, %r1, -1;\n"
      "redux.sync.min.s32 %r3, %r1, -1;\nredux.sync.max.u32 %r4, %r1, -1;\n"
      "redux.sync.xor.b32 %r5, %r1, -1;\nst.global.v4.u32 [%rd0], {%r2, %r3, %r4, %r5};\n";
  const Words reduced =
      run(kernel_of("setp.ne.u32 %p1, %r0, 0;\n" + redux.substr(0, redux.find("st")) +
                    "@%p1 bra $end;\n" + redux.substr(redux.find("st")) + "$end:\n"),
          in, 4)
          .out;
  uint32_t sum = 0, most = 0, mixed = 0;
  int32_t least = 1000;
  for (const uint32_t x : in) {
    sum += x;
    least = std::min(least, int32_t(x));
    most = std::max(most, x);
    mixed ^= x;
  }
  CHECK((reduced == Words{sum, uint32_t(least), most, mixed}));
  const Words matched = run_lines(
      "and.b32 %r1, %r0, 3;\nmatch.any.sync.b32 %r2, %r1, -1;\nst.global.u32 [%rd2], %r2;");
  for (uint32_t l = 0; l < 32; ++l) CHECK(matched[l] == 0x11111111u << (l & 3));
}

// 8 x 8 halves from rows that 8 lanes name, plain and transposed.
void matrices() {
  for (const int count : {1, 2, 4})
    for (const bool transposed : {false, true}) {
      Words in(128);
      for (size_t k = 0; k < 128; ++k)
        in[k] = uint32_t((2 * k + 1) << 16 | 2 * k);  // 16-bit 0, 1, ...
      std::string list = "{%r10";
      for (int m = 1; m < count; ++m) list += ", %r1" + std::to_string(m);
      // Rows are 16 bytes; lane l names row (l * 5) % 32.
      std::string lines =
          ".shared .align 16 .b8 rows[512];\nmul.wide.u32 %rd4, %r0, 16;\nadd.s64 %rd5, %rd1, "
          "%rd4;\n"
          "ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd5];\nmov.u32 %r5, rows;\n"
          "mad.lo.u32 %r6, %r0, 16, %r5;\nst.shared.v4.u32 [%r6], {%r1, %r2, %r3, %r4};\nbar.sync "
          "0;\n"
          "mul.lo.u32 %r7, %r0, 5;\nand.b32 %r7, %r7, 31;\nmad.lo.u32 %r7, %r7, 16, %r5;\n"
          "ldmatrix.sync.aligned.m8n8.x" +
          std::to_string(count) + (transposed ? ".trans" : "") + ".shared.b16 " + list +
          "}, [%r7];\nmad.wide.u32 %rd6, %r0, 12, %rd2;\n";
      for (int m = 0; m < count; ++m)
        lines +=
            "st.global.u32 [%rd6+" + std::to_string(4 * m) + "], %r1" + std::to_string(m) + ";\n";
      const Words out = run(kernel_of(lines), in, 128).out;
      for (int l = 0; l < 32; ++l)
        for (int m = 0; m < count; ++m)
          for (int part = 0; part < 2; ++part) {
            const int row = transposed ? 2 * (l % 4) + part : l / 4;
            const int column = transposed ? l / 4 : 2 * (l % 4) + part;
            const int want = (8 * m + row) * 5 % 32 * 8 + column;
            CHECK(int(out[size_t(4 * l + m)] >> (16 * part) & 0xffff) == want);
          }
    }
}

struct Product {
  const char* type;
  int depth;
};

double number_of(const char* type, uint32_t bits) {
  if (type[0] == 't') return double(float_of(bits & 0xffffe000u));
  return type[0] == 'b' ? double(wide(ptx::Bfloat{uint16_t(bits)}))
                        : double(wide(ptx::Half{uint16_t(bits)}));
}

uint32_t bits_in(const char* type, float x) {
  if (type[0] == 't') return bits_of(x) & 0xffffe000u;
  return type[0] == 'b' ? ptx::bfloat_of(x).bits : ptx::half_of(double(x)).bits;
}

// A, B and C in memory row by row; every lane loads its fragments as the manual has them.
void products() {
  const Product kinds[] = {{"f16", 16}, {"f16", 8},  {"bf16", 16},
                           {"bf16", 8}, {"tf32", 8}, {"tf32", 4}};
  for (const Product& kind : kinds)
    for (const TensorSums sums : {TensorSums::rounded, TensorSums::truncating}) {
      const int depth = kind.depth, packed = kind.type[0] == 't' ? 1 : 2;
      std::vector<uint32_t> a(size_t(16 * depth)), b(size_t(8 * depth)), in;
      std::vector<float> c(128);
      std::normal_distribution<float> normal;
      for (uint32_t& x : a) x = bits_in(kind.type, normal(generator));
      for (uint32_t& x : b) x = bits_in(kind.type, normal(generator));
      for (float& x : c) x = normal(generator);
      const int count_a = 16 * depth / 32 / packed, count_b = 8 * depth / 32 / packed;
      std::string lines = "mad.wide.u32 %rd4, %r0, " +
                          std::to_string(4 * (count_a + count_b + 4) - 4) + ", %rd3;\n";
      const auto registers = [&](int first, int count) {
        std::string list = "{";
        for (int k = 0; k < count; ++k)
          list += (k == 0 ? "%r" : ", %r") + std::to_string(first + k);
        return list + "}";
      };
      const int total = count_a + count_b + 4;
      for (int k = 0; k < total; ++k)
        lines += "ld.global.u32 %r" + std::to_string(10 + k) + ", [%rd4+" + std::to_string(4 * k) +
                 "];\n";
      for (int l = 0; l < 32; ++l) {
        const int group = l / 4, t = l % 4;
        const auto column = [&](int pair, int part) {
          return packed == 2 ? 8 * pair + 2 * t + part : 4 * pair + t;
        };
        for (int k = 0; k < count_a; ++k) {
          uint32_t word = 0;
          for (int part = 0; part < packed; ++part)
            word |= a[size_t((group + 8 * (k % 2)) * depth + column(k / 2, part))] << (16 * part);
          in.push_back(word);
        }
        for (int k = 0; k < count_b; ++k) {
          uint32_t word = 0;
          for (int part = 0; part < packed; ++part)
            word |= b[size_t(column(k, part) * 8 + group)] << (16 * part);
          in.push_back(word);
        }
        for (int k = 0; k < 4; ++k)
          in.push_back(bits_of(c[size_t((group + 8 * (k / 2)) * 8 + 2 * t + k % 2)]));
      }
      lines += "mma.sync.aligned.m16n8k" + std::to_string(depth) + ".row.col.f32." + kind.type +
               "." + kind.type + ".f32 " + registers(50, 4) + ", " + registers(10, count_a) + ", " +
               registers(10 + count_a, count_b) + ", " + registers(10 + count_a + count_b, 4) +
               ";\n" + "mad.wide.u32 %rd5, %r0, 12, %rd2;\nst.global.v4.u32 [%rd5], " +
               registers(50, 4) + ";\n";
      ptx::Options options;
      options.tensor_sums = sums;
      const ptx::Ran ran = run(kernel_of(lines), in, 128, {}, options);
      CHECK(ran.counters.tensor_flops == uint64_t(2 * 16 * 8 * depth));
      for (int l = 0; l < 32; ++l)
        for (int k = 0; k < 4; ++k) {
          const int row = l / 4 + 8 * (k / 2), column = 2 * (l % 4) + k % 2;
          double want = double(c[size_t(row * 8 + column)]), size = std::fabs(want);
          for (int d = 0; d < depth; ++d) {
            const double product = number_of(kind.type, a[size_t(row * depth + d)]) *
                                   number_of(kind.type, b[size_t(d * 8 + column)]);
            want += product;
            size += std::fabs(product);
          }
          const float got = float_of(ran.out[size_t(4 * l + k)]);
          if (sums == TensorSums::rounded) CHECK(got == float(want));
          CHECK(std::fabs(double(got) - want) <= size * 3e-6);
        }
    }
}

// 1 + 2^-24 + 2^-24 is 1 where the terms are cut one by one, in either sign; rounded it is more.
void truncation() {
  const auto sum = [](const char* start, TensorSums how) {
    ptx::Options options;
    options.tensor_sums = how;
    // A is 2^-12 in all places, B is 2^-12 in two rows: 0x0c00.
    const std::string lines =
        "mov.u32 %r1, 0x0c000c00;\nmov.u32 %r2, 0;\nmov.f32 %f1, " + std::string(start) +
        ";\nrem.u32 %r3, %r0, 4;\nsetp.eq.u32 %p1, %r3, 0;\n"
        "selp.b32 %r4, %r1, 0, %p1;\n"
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f2, %f3, %f4, %f5}, "
        "{%r1, %r1}, {%r4}, {%f1, %f1, %f1, %f1};\nst.global.f32 [%rd2], %f2;";
    return float_of(run(kernel_of(lines), {0}, 32, {}, options).out[9]);
  };
  CHECK(sum("0f3F800000", TensorSums::truncating) == 1);
  CHECK(sum("0f3F800000", TensorSums::rounded) == 1 + std::ldexp(1.0f, -23));
  CHECK(sum("0f00000000", TensorSums::truncating) == std::ldexp(1.0f, -23));
}

// Two stages of copies: the older group is there after wait_group 1, the younger after wait_all. A
// shorter source is filled with zeros.
void copies() {
  const std::string lines =
      ".shared .align 16 .b8 stage[1024];\nmov.u32 %r1, stage;\nmad.lo.u32 %r2, %r0, 16, %r1;\n"
      "mad.wide.u32 %rd4, %r0, 16, %rd1;\n"
      "cp.async.cg.shared.global [%r2], [%rd4], 16;\ncp.async.commit_group;\n"
      "cp.async.ca.shared.global [%r2+512], [%rd4], 8, 4;\ncp.async.commit_group;\n"
      "cp.async.wait_group 1;\nbar.sync 0;\nxor.b32 %r3, %r0, 1;\nmad.lo.u32 %r3, %r3, 16, %r1;\n"
      "ld.shared.u32 %r4, [%r3+8];\ncp.async.wait_all;\nbar.sync 0;\n"
      "ld.shared.v2.u32 {%r5, %r6}, [%r3+512];\nadd.s32 %r4, %r4, %r5;\nadd.s32 %r4, %r4, %r6;\n"
      "st.global.u32 [%rd2], %r4;";
  Words in(128);
  for (uint32_t k = 0; k < 128; ++k) in[k] = k * k + 1;
  const ptx::Ran ran = run(kernel_of(lines), in, 32);
  for (uint32_t l = 0; l < 32; ++l) CHECK(ran.out[l] == in[4 * (l ^ 1) + 2] + in[4 * (l ^ 1)]);
  CHECK(ran.counters.shared_written == 32 * 24 && ran.counters.shared_read == 32 * 12);
  CHECK(ran.counters.instructions[int(ptx::Work::async_copy)] == 64);
}

// Blocks that add to one number, dynamic shared memory, variables, generic addresses.
void memory() {
  const std::string lines =
      "ld.const.u32 %r1, [table+8];\natom.global.add.u32 %r2, [%rd0], %r1;\n"
      "mov.u64 %rd4, dynamic;\ncvta.shared.u64 %rd5, %rd4;\nmad.wide.u32 %rd5, %r0, 4, %rd5;\n"
      "st.u32 [%rd5], %r0;\nbar.sync 0;\nld.u32 %r3, [%rd5];\nred.global.max.u32 [%rd0+4], %r3;\n"
      "mov.u32 %r5, 9;\natom.global.cas.b32 %r6, [%rd0+8], 0xdeadbeef, %r5;";
  const Words out = run(kernel_of(lines,
                                  ".extern .shared .align 16 .b8 dynamic[];\n"
                                  ".const .align 4 .b32 table[3] = {1, 2, 3};\n"),
                        {0}, 3, {5, 96, 384})
                        .out;
  CHECK(out[0] == 0xdeadbeefu + 3 * 5 * 96 && out[1] == 0xdeadbeefu && out[2] == 9);
}

void counting() {
  const ptx::Ran ran = run(kernel_of("ld.global.u32 %r1, [%rd3];\nmov.b32 %f1, %r1;\n"
                                     "fma.rn.f32 %f2, %f1, %f1, %f1;\nsetp.lt.u32 %p1, %r0, 10;\n"
                                     "@%p1 st.global.f32 [%rd2], %f2;"),
                           Words(64, 0), 64, {1, 64});
  CHECK(ran.counters.flops == 128 && ran.counters.global_read == 256);
  CHECK(ran.counters.global_written == 40);
  CHECK(ran.counters.instructions[int(ptx::Work::load)] == 64);
}

}  // namespace

int main() {
  shuffles();
  votes();
  matrices();
  products();
  truncation();
  copies();
  memory();
  counting();
  return 0;
}
