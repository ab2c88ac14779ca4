// What the lanes of a warp and the warps of a block do together: shuffles, votes, barriers.
#include <algorithm>

#include "decode.hpp"

namespace ptx {
namespace {

enum Shuffle : uint8_t { up, down, bfly, idx };

// shfl.sync d|p, a, b, c, mask. c holds the last lane of a segment and the bits that segments
// share.
void shuffle(Warp& warp, const Instruction& i, Lanes lanes) {
  uint32_t from[kWarp];
  const char* a = warp.in(i.operands[1]);
  each(lanes, [&](int l) { from[l] = get<uint32_t>(a, l); });
  Lanes valid = 0;
  each(lanes, [&](int l) {
    const int b = int(get<uint32_t>(warp.in(i.operands[2]), l) & 31);
    const uint32_t c = get<uint32_t>(warp.in(i.operands[3]), l);
    const int clamp = int(c & 31), segment = int(c >> 8 & 31);
    const int last = (l & segment) | (clamp & ~segment);
    int source = i.mode == up     ? l - b
                 : i.mode == down ? l + b
                 : i.mode == bfly ? l ^ b
                                  : (l & segment) | (b & ~segment & 31);
    const bool inside = i.mode == up ? source >= last : source <= last;
    if (inside)
      valid |= 1u << l;
    else
      source = l;
    if ((lanes >> source & 1u) == 0)
      warp.fault(i, l, "shuffles from a lane that its mask excludes");
    put(warp.out(i.operands[0]), l, from[source]);
  });
  if (i.operands[4].given) warp.set_bits(i.operands[4], valid, lanes);
}

enum Ballot : uint8_t { ballot, vote_all, vote_any, vote_uni };

void vote(Warp& warp, const Instruction& i, Lanes lanes) {
  const Lanes votes = warp.bits(i.operands[1]) & lanes;
  if (i.mode == ballot) {
    each(lanes, [&](int l) { put(warp.out(i.operands[0]), l, votes); });
    return;
  }
  const bool holds = i.mode == vote_all   ? votes == lanes
                     : i.mode == vote_any ? votes != 0
                                          : votes == 0 || votes == lanes;
  warp.set_bits(i.operands[0], holds ? kAllLanes : 0, lanes);
}

enum Reduction : uint8_t { sum, least, most, all_and, all_or, all_xor };

template <class T>
void reduce(Warp& warp, const Instruction& i, Lanes lanes) {
  const char* a = warp.in(i.operands[1]);
  T out = get<T>(a, __builtin_ctz(lanes));
  each(lanes & (lanes - 1), [&](int l) {
    const T b = get<T>(a, l);
    switch (i.mode) {
      case sum: out = T(uint32_t(out) + uint32_t(b)); break;
      case least: out = std::min(out, b); break;
      case most: out = std::max(out, b); break;
      case all_and: out = T(out & b); break;
      case all_or: out = T(out | b); break;
      default: out = T(out ^ b); break;
    }
  });
  each(lanes, [&](int l) { put(warp.out(i.operands[0]), l, out); });
}

// match.any d, a: the lanes with the same value. match.all d|p, a: all lanes if all have the same.
template <class T>
void match(Warp& warp, const Instruction& i, Lanes lanes) {
  const char* a = warp.in(i.operands[1]);
  Lanes matching = 0;
  Lanes found[kWarp] = {};
  each(lanes, [&](int l) {
    each(lanes, [&](int k) {
      if (get<T>(a, k) == get<T>(a, l)) found[l] |= 1u << k;
    });
    if (found[l] == lanes) matching |= 1u << l;
    if (i.mode != 0 && found[l] != lanes) found[l] = 0;
  });
  each(lanes, [&](int l) { put(warp.out(i.operands[0]), l, found[l]); });
  if (i.operands[4].given) warp.set_bits(i.operands[4], matching, lanes);
}

void meet_warp(Warp& warp, const Instruction&, Lanes lanes) { warp.order.synchronize(lanes); }

uint8_t choice(Decoder& decoder, const Statement& s, const std::vector<std::string>& words) {
  for (size_t k = 0; k < words.size(); ++k)
    if (s.has(words[k])) return uint8_t(k);
  decoder.refuse(s, "the interpreter does not know " + s.opcode);
}

Operand second_result(Decoder& decoder, const Statement& s) {
  if (s.terms[0].second.empty()) return {};
  Term second;
  second.text = s.terms[0].second;
  return decoder.operand(s, second, 'p');
}

void decode_barrier(Decoder& decoder, const Statement& s, Instruction& i) {
  i.work = Work::barrier;
  if (s.has("warp")) {
    i.kind = Kind::together;
    i.operands[kMask] = decoder.operand(s, 0, 'w');
    i.run = meet_warp;
    return;
  }
  i.kind = Kind::barrier;
  const bool reduces = s.has("red");
  const size_t number = reduces ? 1 : 0;
  const bool plain = s.terms.size() == (reduces ? 3u : 1u) &&
                     s.terms[number].kind == Term::number && s.terms[number].bits == 0;
  if (!plain || (!reduces && !s.has("sync")))
    decoder.refuse(s, "the interpreter knows barrier 0 of all threads only, not " + s.opcode);
  if (!reduces) return;
  i.vote = s.has("popc") ? Vote::count : s.has("and") ? Vote::all : Vote::any;
  i.operands[0] = decoder.operand(s, 0, i.vote == Vote::count ? 'w' : 'p');
  i.operands[1] = decoder.operand(s, 2, 'p');
}

}  // namespace

bool decode_warp(Decoder& decoder, const Statement& s, Instruction& i) {
  const std::string& first = s.words[0];
  if (first == "bar" || first == "barrier") {
    decode_barrier(decoder, s, i);
    return true;
  }
  if (first == "activemask") {
    i.work = Work::shuffle;
    i.operands[0] = decoder.operand(s, 0, 'w');
    i.run = [](Warp& warp, const Instruction& at, Lanes lanes) {
      each(lanes, [&](int l) { put(warp.out(at.operands[0]), l, lanes); });
    };
    return true;
  }
  if (first != "shfl" && first != "vote" && first != "redux" && first != "match") return false;
  if (!s.has("sync")) decoder.refuse(s, s.opcode + " without .sync");
  i.kind = Kind::together;
  i.work = Work::shuffle;
  i.operands[kMask] = decoder.operand(s, s.terms.size() - 1, 'w');
  if (first == "shfl") {
    i.mode = choice(decoder, s, {"up", "down", "bfly", "idx"});
    for (size_t k = 0; k < 4; ++k) i.operands[k] = decoder.operand(s, k, 'w');
    i.operands[4] = second_result(decoder, s);
    i.run = shuffle;
  } else if (first == "vote") {
    i.mode = choice(decoder, s, {"ballot", "all", "any", "uni"});
    i.operands[0] = decoder.operand(s, 0, i.mode == ballot ? 'w' : 'p');
    i.operands[1] = decoder.operand(s, 1, 'p');
    i.run = vote;
  } else if (first == "redux") {
    i.mode = choice(decoder, s, {"add", "min", "max", "and", "or", "xor"});
    if (s.words.back() == "f32") decoder.refuse(s, "the interpreter does not know " + s.opcode);
    for (size_t k = 0; k < 2; ++k) i.operands[k] = decoder.operand(s, k, 'w');
    i.run = s.words.back() == "s32" ? reduce<int32_t> : reduce<uint32_t>;
  } else {
    i.mode = choice(decoder, s, {"any", "all"});
    const char shape = s.words.back() == "b64" ? 'l' : 'w';
    i.operands[0] = decoder.operand(s, 0, 'w');
    i.operands[1] = decoder.operand(s, 1, shape);
    i.operands[4] = second_result(decoder, s);
    i.run = shape == 'l' ? match<uint64_t> : match<uint32_t>;
  }
  return true;
}

}  // namespace ptx
