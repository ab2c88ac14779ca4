// cp.async: copies from global to shared memory that are complete when somebody has waited for
// them, and not a moment before. ldmatrix, which reads what they bring.
#include <algorithm>

#include "decode.hpp"

namespace ptx {
namespace {

// Calls f(offset, bytes) for pieces that are aligned, as many as it takes to read no more than
// this.
template <class F>
void pieces(uint32_t bytes, F f) {
  for (uint32_t at = 0; at < bytes;) {
    uint32_t size = 16;
    while (at % size != 0 || at + size > bytes) size /= 2;
    f(at, size);
    at += size;
  }
}

void issue(Warp& warp, const Instruction& i, Lanes lanes) {
  each(lanes, [&](int l) {
    const uint64_t to = warp.address(i, l) & ~kSharedWindow;
    const uint64_t from = get<uint64_t>(warp.in(i.from), l) + uint64_t(i.from_offset);
    uint32_t read = i.bytes;
    if (i.operands[0].given) read = std::min(read, get<uint32_t>(warp.in(i.operands[0]), l));
    if (i.operands[1].given && (warp.bits(i.operands[1]) >> l & 1u) != 0) read = 0;
    if ((from & (i.bytes - 1)) != 0) warp.fault(i, l, "copies from an address that is not aligned");
    warp.reach(i, l, Space::shared, to, i.bytes, {false, true, false});
    pieces(read, [&](uint32_t at, uint32_t size) {
      warp.reach(i, l, Space::global, from + at, size, {true, false, false});
    });
    std::fill_n(warp.block().shared_region.states.begin() + std::ptrdiff_t(to), i.bytes,
                ByteState::pending);
    auto& groups = warp.copies[size_t(l)];
    if (groups.empty()) groups.emplace_back();
    groups.back().push_back({to, from, i.bytes, read});
  });
}

void commit(Warp& warp, const Instruction&, Lanes lanes) {
  each(lanes, [&](int l) {
    auto& groups = warp.copies[size_t(l)];
    if (groups.empty()) groups.emplace_back();
    groups.emplace_back();
  });
}

constexpr size_t kEvery = ~size_t{0};

void wait(Warp& warp, const Instruction& i, Lanes lanes) {
  each(lanes, [&](int l) {
    auto& groups = warp.copies[size_t(l)];
    const auto finish = [&](const AsyncCopy& copy) {
      std::fill_n(warp.block().shared_region.states.begin() + std::ptrdiff_t(copy.to), copy.bytes,
                  ByteState::written);
      char* to = warp.reach(i, l, Space::shared, copy.to, copy.bytes, {false, true, false});
      std::memset(to, 0, copy.bytes);
      pieces(copy.read, [&](uint32_t at, uint32_t size) {
        const Touch touch{true, false, false};
        std::memcpy(to + at, warp.reach(i, l, Space::global, copy.from + at, size, touch), size);
      });
    };
    const bool every = size_t(i.offset) == kEvery;
    const size_t stay = every ? 0 : size_t(i.offset) + 1;  // the open group too
    while (groups.size() > stay) {
      for (const AsyncCopy& copy : groups.front()) finish(copy);
      groups.pop_front();
    }
  });
}

// 8 x 8 numbers of 16 bits: the rows' addresses come from 8 lanes, and every lane gets two numbers.
void load_matrices(Warp& warp, const Instruction& i, Lanes) {
  const Touch touch{true, false, false};
  for (int m = 0; m < i.count; ++m) {
    const auto row = [&](int r) { return warp.address(i, 8 * m + r) & ~kSharedWindow; };
    for (int r = 0; r < 8; ++r)
      if (row(r) % 16 != 0) warp.fault(i, 8 * m + r, "gives a row that is not aligned to 16 bytes");
    for (int l = 0; l < kWarp; ++l) {
      uint32_t value = 0;
      const int pair = 2 * (l % 4), other = l / 4;
      if (i.mode == 0) {
        std::memcpy(&value,
                    warp.reach(i, l, Space::shared, row(other) + uint64_t(2 * pair), 4, touch), 4);
      } else {
        for (int k = 0; k < 2; ++k) {
          uint16_t number;
          std::memcpy(
              &number,
              warp.reach(i, l, Space::shared, row(pair + k) + uint64_t(2 * other), 2, touch), 2);
          value |= uint32_t{number} << (16 * k);
        }
      }
      put(warp.out(i.operands[m]), l, value);
    }
  }
}

void decode_ldmatrix(Decoder& decoder, const Statement& s, Instruction& i) {
  i.count = s.has("x4") ? 4 : s.has("x2") ? 2 : 1;
  i.mode = s.has("trans") ? 1 : 0;
  i.bytes = 4;
  i.kind = Kind::together;
  i.work = Work::load;
  i.space = Space::shared;
  i.run = load_matrices;
  if (!s.has("m8n8") || !s.has("b16"))
    decoder.refuse(s, "the interpreter does not know " + s.opcode);
  decoder.list(s, s.terms[0], 'w', i, 0);
  decoder.address(s, 1, i);
}

}  // namespace

bool decode_copies(Decoder& decoder, const Statement& s, Instruction& i) {
  if (s.words[0] == "ldmatrix") {
    decode_ldmatrix(decoder, s, i);
    return true;
  }
  if (s.words[0] != "cp" || s.words.size() < 3 || s.words[1] != "async") return false;
  i.work = Work::barrier;
  if (s.words[2] == "commit_group") {
    i.run = commit;
  } else if (s.words[2] == "wait_all" || s.words[2] == "wait_group") {
    i.run = wait;
    i.offset = int64_t(s.words[2] == "wait_all" ? kEvery : s.terms.at(0).bits);
  } else if (s.words[2] == "ca" || s.words[2] == "cg") {
    if (s.terms.size() < 3 || s.terms[2].kind != Term::number)
      decoder.refuse(s, "does not know " + s.opcode);
    i.work = Work::async_copy;
    i.bytes = uint32_t(s.terms[2].bits);
    i.run = issue;
    Instruction source;
    decoder.address(s, 1, source);
    i.from = source.address;
    i.from_offset = source.offset;
    decoder.address(s, 0, i);
    if (!source.address.given || !source.wide_address) decoder.refuse(s, "a source of " + s.opcode);
    const bool fits = i.bytes == 16 || (s.words[2] == "ca" && (i.bytes == 4 || i.bytes == 8));
    if (!fits) decoder.refuse(s, s.opcode + " of " + std::to_string(i.bytes) + " bytes");
    if (s.terms.size() > 3) {  // how much to read, or a predicate: nothing
      const bool number = s.terms[3].kind == Term::number;
      const bool predicate = !number && decoder.shape_of(s, s.terms[3]) == 'p';
      i.operands[predicate ? 1 : 0] = decoder.operand(s, 3, predicate ? 'p' : 'w');
    }
  } else {
    decoder.refuse(s, "the interpreter does not know " + s.opcode);
  }
  return true;
}

}  // namespace ptx
