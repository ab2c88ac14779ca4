#include "bundle/png_write.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>

#include "bundle/crc32.hpp"
#include "failure.hpp"

namespace anoco {
namespace {

// ---- deflate (RFC 1951)

constexpr int kSymbols = 286, kEnd = 256, kFirstLength = 257, kMostBits = 15;
constexpr int64_t kLeastRun = 3, kMostRun = 258;
constexpr size_t kBlockTokens = size_t{1} << 16;  // that share one code

using Counts = std::array<uint32_t, kSymbols>;
using Lengths = std::array<int, kSymbols>;
using Codes = std::array<uint32_t, kSymbols>;

class BitWriter {
 public:
  explicit BitWriter(Bytes& out) : out_(out) {}
  void put(uint32_t bits, int count) {
    held_ |= uint64_t{bits} << count_;
    for (count_ += count; count_ >= 8; count_ -= 8, held_ >>= 8)
      out_.push_back(static_cast<unsigned char>(held_ & 0xff));
  }
  void finish() {
    if (count_ > 0) put(0, 8 - count_);
  }

 private:
  Bytes& out_;
  uint64_t held_ = 0;
  int count_ = 0;
};

// The symbol of a run, the number of extra bits that follow it, and the length that stands for
// extra bits of zero.
struct LengthCode {
  int symbol, bits;
  int64_t first;
};

// Section 3.2.5: eight symbols without extra bits, then four for each number of extra bits.
LengthCode length_code(int64_t run) {
  if (run == kMostRun) return {kSymbols - 1, 0, kMostRun};
  LengthCode code{kFirstLength, 0, kLeastRun};
  while (run >= code.first + (int64_t{1} << code.bits)) {
    code.first += int64_t{1} << code.bits;
    ++code.symbol;
    code.bits = std::max(0, (code.symbol - kFirstLength) / 4 - 1);
  }
  return code;
}

// Returns the depth of each symbol in Huffman's tree.
Lengths huffman_depths(const Counts& counts) {
  std::vector<std::pair<uint64_t, size_t>> heap;  // weight, node
  std::vector<size_t> parent(kSymbols);           // symbols first, then what joins two nodes
  for (size_t s = 0; s < kSymbols; ++s)
    if (counts[s] > 0) heap.emplace_back(counts[s], s);
  const auto take = [&] {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const auto lightest = heap.back();
    heap.pop_back();
    return lightest;
  };
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  while (heap.size() > 1) {
    const auto a = take(), b = take();
    parent[a.second] = parent[b.second] = parent.size();
    heap.emplace_back(a.first + b.first, parent.size());
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
    parent.push_back(0);
  }
  std::vector<int> depth(parent.size());
  for (size_t node = parent.size() - 1; node-- > kSymbols;) depth[node] = depth[parent[node]] + 1;
  Lengths lengths{};
  for (size_t s = 0; s < kSymbols; ++s)
    if (counts[s] > 0) lengths[s] = depth[parent[s]] + 1;
  return lengths;
}

// If a code would be too long, the counts are flattened, which costs very little compression.
Lengths code_lengths(Counts counts) {
  for (;;) {
    const Lengths lengths = huffman_depths(counts);
    if (*std::max_element(lengths.begin(), lengths.end()) <= kMostBits) return lengths;
    for (uint32_t& count : counts) count = (count + 1) / 2;
  }
}

// Section 3.2.2, with the first bit lowest, as codes are written.
Codes codes_of(const Lengths& lengths) {
  std::array<uint32_t, kMostBits + 1> count{}, next{};
  for (int length : lengths) ++count[length];
  count[0] = 0;
  for (int bits = 1; bits <= kMostBits; ++bits)
    next[bits] = (next[bits - 1] + count[bits - 1]) << 1;
  Codes codes{};
  for (size_t s = 0; s < kSymbols; ++s) {
    uint32_t code = lengths[s] > 0 ? next[lengths[s]]++ : 0;
    for (int k = 0; k < lengths[s]; ++k, code >>= 1) codes[s] = codes[s] << 1 | (code & 1);
  }
  return codes;
}

// Writes a zlib stream (RFC 1950) of blocks with their own codes; the only repetitions that it uses
// are runs of one byte.
class Deflater {
 public:
  explicit Deflater(Bytes& out) : out_(out), bits_(out) {
    out_.insert(out_.end(), {0x78, 0x01});
    tokens_.reserve(kBlockTokens);
  }

  void add(const uint8_t* data, int64_t count) {
    add_to_checksum(data, count);
    for (int64_t i = 0; i < count;) {
      int64_t run = 0;
      const int64_t most = std::min(kMostRun, count - i);
      while (run < most && data[i + run] == before_) ++run;
      if (run >= kLeastRun) {
        add_token(kEnd + int(run));
        i += run;
      } else {
        before_ = data[i++];
        add_token(before_);
      }
    }
  }

  void finish() {
    write_block(true);
    bits_.finish();
    for (int shift : {8, 0}) out_.push_back(static_cast<unsigned char>(high_ >> shift & 0xff));
    for (int shift : {8, 0}) out_.push_back(static_cast<unsigned char>(low_ >> shift & 0xff));
  }

 private:
  void add_to_checksum(const uint8_t* data, int64_t count) {
    constexpr uint32_t kModulus = 65521;
    constexpr int64_t kAtOnce = 5552;  // sums of so many bytes fit into 32 bits
    for (int64_t i = 0; i < count; low_ %= kModulus, high_ %= kModulus)
      for (const int64_t end = std::min(count, i + kAtOnce); i < end; ++i) high_ += low_ += data[i];
  }

  void add_token(int token) {
    tokens_.push_back(static_cast<uint16_t>(token));
    if (tokens_.size() == kBlockTokens) write_block(false);
  }

  void write_block(bool last) {
    Counts counts{};
    for (uint16_t token : tokens_) ++counts[token < kEnd ? token : length_of(token).symbol];
    ++counts[kEnd];
    if (tokens_.empty()) ++counts[0];  // a code needs two symbols
    const Lengths lengths = code_lengths(counts);
    const Codes codes = codes_of(lengths);
    write_header(last, lengths);
    for (uint16_t token : tokens_) {
      if (token < kEnd) {
        bits_.put(codes[token], lengths[token]);
        continue;
      }
      const LengthCode& length = length_of(token);
      bits_.put(codes[length.symbol], lengths[length.symbol]);
      bits_.put(static_cast<uint32_t>(token - kEnd - length.first), length.bits);
      bits_.put(0, 1);  // the only distance, 1
    }
    bits_.put(codes[kEnd], lengths[kEnd]);
    tokens_.clear();
  }

  // Section 3.2.7. The lengths of codes are themselves coded: plainly, with four bits each.
  void write_header(bool last, const Lengths& lengths) {
    constexpr int kCodedLengths = 19, kUnused = 3;  // the first three stand for repetitions
    bits_.put(last ? 1 : 0, 1);
    bits_.put(2, 2);
    bits_.put(kSymbols - 257, 5);
    bits_.put(0, 5);  // one distance
    bits_.put(kCodedLengths - 4, 4);
    for (int k = 0; k < kCodedLengths; ++k) bits_.put(k < kUnused ? 0 : 4, 3);
    for (int length : lengths) put_length(length);
    put_length(1);
  }
  void put_length(int length) {
    uint32_t reversed = 0;
    for (int k = 0; k < 4; ++k) reversed |= uint32_t(length >> k & 1) << (3 - k);
    bits_.put(reversed, 4);
  }

  const LengthCode& length_of(uint16_t token) const { return runs_[token - kEnd]; }
  static std::array<LengthCode, kMostRun + 1> all_runs() {
    std::array<LengthCode, kMostRun + 1> runs{};
    for (int64_t run = kLeastRun; run <= kMostRun; ++run) runs[run] = length_code(run);
    return runs;
  }

  Bytes& out_;
  BitWriter bits_;
  std::vector<uint16_t> tokens_;  // a byte, or kEnd and the length of a run
  int before_ = -1;               // the byte before
  uint32_t low_ = 1, high_ = 0;   // Adler-32
  const std::array<LengthCode, kMostRun + 1> runs_ = all_runs();
};

// ---- PNG

constexpr int64_t kPixel = 3;
enum Filter : uint8_t { kSub = 1, kUp = 2, kAverage = 3 };

// Writes the number of a filter and the filtered row.
void filter_row(Filter filter, const uint8_t* row, const uint8_t* above, int64_t bytes,
                uint8_t* out) {
  *out++ = filter;
  for (int64_t i = 0; i < bytes; ++i) {
    const int left = i < kPixel ? 0 : row[i - kPixel];
    const int guess = filter == kSub ? left : filter == kUp ? above[i] : (left + above[i]) / 2;
    out[i] = static_cast<uint8_t>(row[i] - guess);
  }
}

// Estimates the size of a filtered row: small differences, of either sign, have short codes.
int64_t cost(const std::vector<uint8_t>& filtered) {
  int64_t sum = 0;
  for (uint8_t value : filtered) sum += std::abs(static_cast<int8_t>(value));
  return sum;
}

void put_be32(Bytes& out, uint64_t value) {
  for (int shift : {24, 16, 8, 0}) out.push_back(static_cast<unsigned char>(value >> shift & 0xff));
}

// Writes a chunk whose content `write` appends.
template <class Write>
void put_chunk(Bytes& out, const char* type, Write&& write) {
  const size_t start = out.size();
  put_be32(out, 0);
  out.insert(out.end(), type, type + 4);
  write();
  Bytes length;
  put_be32(length, out.size() - start - 8);
  std::copy(length.begin(), length.end(), out.begin() + std::ptrdiff_t(start));
  put_be32(out, crc32(view(out).substr(start + 4)));
}

void put_pixels(Bytes& out, const uint8_t* rgb, int64_t width, int64_t height) {
  const int64_t bytes = width * kPixel;
  const std::vector<uint8_t> black(bytes);
  std::vector<uint8_t> best(bytes + 1), other(bytes + 1);
  Deflater deflater(out);
  for (int64_t y = 0; y < height; ++y, rgb += bytes) {
    const uint8_t* above = y > 0 ? rgb - bytes : black.data();
    filter_row(kSub, rgb, above, bytes, best.data());
    for (Filter filter : {kUp, kAverage}) {
      filter_row(filter, rgb, above, bytes, other.data());
      if (cost(other) < cost(best)) best.swap(other);
    }
    deflater.add(best.data(), bytes + 1);
  }
  deflater.finish();
}

}  // namespace

Bytes write_png(const uint8_t* rgb, int64_t width, int64_t height) {
  constexpr int64_t kMost = int64_t{1} << 29;  // a chunk holds less than 2^31 bytes
  if (width > kMost / height)
    fail(ANOCO_BAD_PICTURE,
         "a picture of " + std::to_string(width) + "x" + std::to_string(height) +
             " is too large to be kept",
         "cut or scale it first");
  Bytes out{0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
  put_chunk(out, "IHDR", [&] {
    put_be32(out, uint64_t(width));
    put_be32(out, uint64_t(height));
    out.insert(out.end(), {8, 2, 0, 0, 0});  // 8 bits, RGB
  });
  put_chunk(out, "IDAT", [&] { put_pixels(out, rgb, width, height); });
  put_chunk(out, "IEND", [] {});
  return out;
}

}  // namespace anoco
