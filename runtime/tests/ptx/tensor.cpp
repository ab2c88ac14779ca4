// mma.sync: D = A B + C over fragments that lie in the registers of 32 lanes, 16 x 8 results.
#include <algorithm>
#include <cmath>

#include "decode.hpp"
#include "half.hpp"

namespace ptx {
namespace {

enum Numbers : uint8_t { f16, bf16, tf32 };

constexpr int kRows = 16, kColumns = 8;

// The largest of these has 24 bits; tensor cores add what the others have in common with them.
// A coarse model: it is meant to lose no less than a device does, and was compared with none.
float truncated_sum(const double* products, int count, float start) {
  int top = -1000;
  const auto see = [&](double x) {
    if (x == 0) return;
    int exponent = 0;
    std::frexp(x, &exponent);
    top = std::max(top, exponent);
  };
  see(double(start));
  for (int k = 0; k < count; ++k) see(products[k]);
  if (top == -1000) return start + float(products[0]);
  double sum = std::trunc(std::ldexp(double(start), 24 - top));
  for (int k = 0; k < count; ++k) sum += std::trunc(std::ldexp(products[k], 24 - top));
  int exponent = 0;
  std::frexp(sum, &exponent);
  const int cut = std::max(exponent - 24, 0);  // a carry costs low bits
  return float(std::ldexp(std::ldexp(std::trunc(std::ldexp(sum, -cut)), cut), top - 24));
}

float sum_of(const double* products, int count, int step, float start, TensorSums how) {
  bool finite = std::isfinite(start);
  for (int k = 0; k < count; ++k) finite = finite && std::isfinite(products[k]);
  if (how == TensorSums::rounded || !finite) {
    double sum = double(start);
    for (int k = 0; k < count; ++k) sum += products[k];
    return float(sum);
  }
  for (int k = 0; k < count; k += step)
    start = truncated_sum(products + k, std::min(step, count - k), start);
  return start;
}

// Fragments, as the PTX manual has them: row of four lanes, place among the four.
struct Layout {
  int depth;   // k
  int packed;  // numbers of a register
  uint8_t numbers;

  int registers_a() const { return kRows * depth / kWarp / packed; }
  int registers_b() const { return kColumns * depth / kWarp / packed; }
  int column(int lane, int pair, int part) const {
    return packed == 2 ? 8 * pair + 2 * (lane % 4) + part : 4 * pair + lane % 4;
  }
};

double number_in(uint32_t bits, int part, uint8_t numbers) {
  const auto narrow = uint16_t(bits >> (16 * part));
  if (numbers == f16) return double(wide(Half{narrow}));
  if (numbers == bf16) return double(wide(Bfloat{narrow}));
  return double(float_of(bits & 0xffffe000u));
}

void multiply(Warp& warp, const Instruction& i, Lanes) {
  const Layout layout{i.count, i.mode == tf32 ? 1 : 2, i.mode};
  const int registers_a = layout.registers_a(), registers_b = layout.registers_b();
  const bool narrow = i.bytes == 2;  // the sums are f16
  const int sums = narrow ? 2 : 4, first_a = sums, first_b = first_a + registers_a,
            first_c = first_b + registers_b;
  double a[kRows][16], b[16][kColumns];
  float c[kRows][kColumns];
  for (int l = 0; l < kWarp; ++l) {
    const auto in = [&](int k) { return get<uint32_t>(warp.in(i.operands[k]), l); };
    for (int k = 0; k < registers_a; ++k)
      for (int part = 0; part < layout.packed; ++part)
        a[l / 4 + 8 * (k % 2)][layout.column(l, k / 2, part)] =
            number_in(in(first_a + k), part, i.mode);
    for (int k = 0; k < registers_b; ++k)
      for (int part = 0; part < layout.packed; ++part)
        b[layout.column(l, k, part)][l / 4] = number_in(in(first_b + k), part, i.mode);
    for (int k = 0; k < 4; ++k) {
      float& to = c[l / 4 + 8 * (k / 2)][2 * (l % 4) + k % 2];
      to = narrow ? wide(Half{uint16_t(in(first_c + k / 2) >> (16 * (k % 2)))})
                  : float_of(in(first_c + k));
    }
  }
  const int step = layout.packed == 2 ? 8 : 4;
  for (int row = 0; row < kRows; ++row)
    for (int column = 0; column < kColumns; ++column) {
      double products[16];
      for (int k = 0; k < layout.depth; ++k) products[k] = a[row][k] * b[k][column];
      float& sum = c[row][column];
      sum = sum_of(products, layout.depth, step, sum, warp.launch().options.tensor_sums);
    }
  for (int l = 0; l < kWarp; ++l)
    for (int k = 0; k < sums; ++k) {
      const auto at = [&](int part) { return c[l / 4 + 8 * (part / 2)][2 * (l % 4) + part % 2]; };
      const uint32_t bits = narrow ? uint32_t{half_of(double(at(2 * k + 1))).bits} << 16 |
                                         half_of(double(at(2 * k))).bits
                                   : bits_of(at(k));
      put(warp.out(i.operands[k]), l, bits);
    }
}

}  // namespace

bool decode_tensor(Decoder& decoder, const Statement& s, Instruction& i) {
  if (s.words[0] != "mma") return false;
  // mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32: D, A, B, C
  const auto unknown = [&] { decoder.refuse(s, "the interpreter does not know " + s.opcode); };
  if (s.words.size() != 10 || s.words[4] != "row" || s.words[5] != "col" || s.terms.size() != 4)
    unknown();
  const std::string &shape = s.words[3], &d = s.words[6], &numbers = s.words[7];
  if (s.words[8] != numbers || s.words[9] != d || (d != "f32" && (d != "f16" || numbers != "f16")))
    unknown();
  i.mode = numbers == "f16" ? f16 : numbers == "bf16" ? bf16 : tf32;
  const bool fits = i.mode == tf32 ? numbers == "tf32" && (shape == "m16n8k8" || shape == "m16n8k4")
                                   : shape == "m16n8k16" || shape == "m16n8k8";
  if (!fits) unknown();
  i.count = uint8_t(std::stoi(shape.substr(6)));
  i.bytes = d == "f16" ? 2 : 4;
  i.kind = Kind::together;
  i.work = Work::tensor;
  i.flops = 2 * kRows * kColumns * i.count / kWarp;
  i.run = multiply;
  const Layout layout{i.count, i.mode == tf32 ? 1 : 2, i.mode};
  const size_t sums = d == "f16" ? 2 : 4;
  const size_t counts[] = {sums, size_t(layout.registers_a()), size_t(layout.registers_b()), sums};
  size_t first = 0;
  for (size_t k = 0; k < 4; ++k) {
    if (s.terms[k].kind != Term::list || s.terms[k].parts.size() != counts[k])
      decoder.refuse(s, s.opcode + " with another number of registers");
    decoder.list(s, s.terms[k], 'w', i, first);
    first += counts[k];
  }
  return true;
}

}  // namespace ptx
