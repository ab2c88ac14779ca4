#include "bundle/inflate.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "failure.hpp"

namespace anoco {
namespace {

[[noreturn]] void damaged() { fail(ANOCO_BAD_BUNDLE, "a zlib stream is damaged"); }

constexpr int kMostBits = 15, kEnd = 256;
constexpr size_t kLiterals = 286, kDistances = 30;

class BitReader {
 public:
  explicit BitReader(std::string_view data) : data_(data) {}

  uint32_t take(int count) {
    while (held_ < count) {
      bits_ |= uint64_t{next()} << held_;
      held_ += 8;
    }
    const auto found = static_cast<uint32_t>(bits_ & ((uint64_t{1} << count) - 1));
    bits_ >>= count;
    held_ -= count;
    return found;
  }

  // Drops the rest of the current byte. At most seven bits are held between calls of `take`.
  std::string_view bytes(size_t count) {
    bits_ = 0;
    held_ = 0;
    if (count > data_.size() - at_) damaged();
    at_ += count;
    return data_.substr(at_ - count, count);
  }

  bool at_end() const { return at_ == data_.size(); }

 private:
  unsigned char next() {
    if (at_ >= data_.size()) damaged();
    return static_cast<unsigned char>(data_[at_++]);
  }

  std::string_view data_;
  size_t at_ = 0;
  uint64_t bits_ = 0;
  int held_ = 0;
};

// A canonical Huffman code (RFC 1951, 3.2.2): codes of one length follow each other, so that a
// symbol is found by counting.
class Code {
 public:
  Code(const unsigned char* lengths, size_t symbols) {
    for (size_t s = 0; s < symbols; ++s) ++count_[lengths[s]];
    count_[0] = 0;
    int room = 1;  // codes of this length that are still free
    std::array<uint16_t, kMostBits + 2> start{};
    for (int bits = 1; bits <= kMostBits; ++bits) {
      room = 2 * room - count_[bits];
      if (room < 0) damaged();
      start[bits + 1] = static_cast<uint16_t>(start[bits] + count_[bits]);
    }
    // A code may be incomplete only if it has a single symbol, or none (a block without distances).
    const int used = start[kMostBits + 1];
    if (room > 0 && (used > 1 || (used == 1 && count_[1] != 1))) damaged();
    for (size_t s = 0; s < symbols; ++s)
      if (lengths[s] != 0) symbols_[start[lengths[s]]++] = static_cast<uint16_t>(s);
  }

  uint32_t take(BitReader& in) const {
    int code = 0, first = 0, before = 0;
    for (int bits = 1; bits <= kMostBits; ++bits) {
      code |= static_cast<int>(in.take(1));
      if (code < first + count_[bits]) return symbols_[static_cast<size_t>(before + code - first)];
      before += count_[bits];
      first = (first + count_[bits]) << 1;
      code <<= 1;
    }
    damaged();
  }

 private:
  std::array<uint16_t, kMostBits + 1> count_{};
  std::array<uint16_t, 288> symbols_{};
};

class Inflater {
 public:
  Inflater(std::string_view stream, unsigned char* out, size_t size)
      : in_(stream), out_(out), size_(size) {}

  void run() {
    const uint32_t method = in_.take(8), flags = in_.take(8);
    const bool deflate = (method & 15) == 8 && method >> 4 <= 7;
    if (!deflate || (method << 8 | flags) % 31 != 0 || (flags & 0x20) != 0) damaged();
    for (bool last = false; !last;) {
      last = in_.take(1) != 0;
      const uint32_t kind = in_.take(2);
      if (kind == 0) stored();
      if (kind == 1) fixed();
      if (kind == 2) dynamic();
      if (kind == 3) damaged();
    }
    const std::string_view sum = in_.bytes(4);
    uint32_t expected = 0;
    for (const char byte : sum) expected = expected << 8 | static_cast<unsigned char>(byte);
    if (at_ != size_ || !in_.at_end() || expected != adler()) damaged();
  }

 private:
  void stored() {
    const std::string_view head = in_.bytes(4);
    const auto byte = [&](size_t i) { return uint32_t{static_cast<unsigned char>(head[i])}; };
    const uint32_t length = byte(0) | byte(1) << 8, check = byte(2) | byte(3) << 8;
    if ((length ^ check) != 0xFFFF || length > size_ - at_) damaged();
    if (length > 0) std::memcpy(out_ + at_, in_.bytes(length).data(), length);
    at_ += length;
  }

  void fixed() {
    std::array<unsigned char, 288> literals;
    std::fill_n(literals.begin(), 144, 8);
    std::fill_n(literals.begin() + 144, 112, 9);
    std::fill_n(literals.begin() + 256, 24, 7);
    std::fill_n(literals.begin() + 280, 8, 8);
    std::array<unsigned char, 32> distances;
    distances.fill(5);
    block(Code(literals.data(), literals.size()), Code(distances.data(), distances.size()));
  }

  void dynamic() {
    static constexpr unsigned char kOrder[19] = {16, 17, 18, 0, 8,  7, 9,  6, 10, 5,
                                                 11, 4,  12, 3, 13, 2, 14, 1, 15};
    const size_t literals = 257 + in_.take(5), distances = 1 + in_.take(5), given = 4 + in_.take(4);
    if (literals > kLiterals || distances > kDistances) damaged();
    std::array<unsigned char, 19> short_lengths{};
    for (size_t i = 0; i < given; ++i)
      short_lengths[kOrder[i]] = static_cast<unsigned char>(in_.take(3));
    const Code lengths_code(short_lengths.data(), short_lengths.size());
    std::array<unsigned char, kLiterals + kDistances> lengths{};
    for (size_t i = 0; i < literals + distances;) {
      const uint32_t symbol = lengths_code.take(in_);
      size_t times = 1;
      unsigned char length = static_cast<unsigned char>(symbol);
      if (symbol >= 16) {
        if (symbol == 16 && i == 0) damaged();
        length = symbol == 16 ? lengths[i - 1] : 0;
        times = symbol == 16 ? 3 + in_.take(2) : symbol == 17 ? 3 + in_.take(3) : 11 + in_.take(7);
      }
      if (times > literals + distances - i) damaged();
      std::fill_n(lengths.begin() + static_cast<ptrdiff_t>(i), times, length);
      i += times;
    }
    if (lengths[kEnd] == 0) damaged();
    block(Code(lengths.data(), literals), Code(lengths.data() + literals, distances));
  }

  void block(const Code& literals, const Code& distances) {
    for (;;) {
      const uint32_t symbol = literals.take(in_);
      if (symbol == kEnd) return;
      if (symbol < kEnd) {
        if (at_ >= size_) damaged();
        out_[at_++] = static_cast<unsigned char>(symbol);
      } else {
        const size_t length = run_length(symbol - 257);
        repeat(length, distance(distances.take(in_)));
      }
    }
  }

  // Section 3.2.5: eight lengths without extra bits, then four for each number of extra bits.
  size_t run_length(uint32_t number) {
    if (number > 28) damaged();
    if (number == 28) return 258;
    if (number < 8) return 3 + number;
    const int bits = static_cast<int>(number / 4) - 1;
    return 3 + ((4 + number % 4) << bits) + in_.take(bits);
  }

  size_t distance(uint32_t number) {
    if (number >= kDistances) damaged();
    if (number < 4) return 1 + number;
    const int bits = static_cast<int>(number / 2) - 1;
    return 1 + ((2 + number % 2) << bits) + in_.take(bits);
  }

  void repeat(size_t length, size_t back) {
    if (back > at_ || length > size_ - at_) damaged();
    for (; length > 0; --length, ++at_) out_[at_] = out_[at_ - back];
  }

  uint32_t adler() const {
    uint32_t a = 1, b = 0;
    for (size_t i = 0; i < size_;) {
      // As many sums as 32 bits hold (RFC 1950, 8.2).
      for (const size_t end = std::min(size_, i + 5552); i < end; ++i) b += a += out_[i];
      a %= 65521;
      b %= 65521;
    }
    return b << 16 | a;
  }

  BitReader in_;
  unsigned char* out_;
  size_t size_, at_ = 0;
};

}  // namespace

bool inflate(std::string_view stream, unsigned char* out, size_t size) {
  try {
    Inflater(stream, out, size).run();
    return true;
  } catch (const Failure&) {
    return false;
  }
}

}  // namespace anoco
