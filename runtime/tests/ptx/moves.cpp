// mov, its packing and unpacking forms, and cvta.
#include "decode.hpp"

namespace ptx {
namespace {

template <class T>
void copy(Warp& warp, const Instruction& i, Lanes lanes) {
  char* d = warp.out(i.operands[0]);
  const char* a = warp.in(i.operands[1]);
  each(lanes, [&](int l) { put(d, l, get<T>(a, l)); });
}

// mov.b64 {%r1, %r2}, %rd: i.count parts of i.bytes.
template <class Whole>
void unpack(Warp& warp, const Instruction& i, Lanes lanes) {
  const uint64_t mask = i.bytes == 8 ? ~uint64_t{0} : (uint64_t{1} << (8 * i.bytes)) - 1;
  each(lanes, [&](int l) {
    const uint64_t whole = get<Whole>(warp.in(i.operands[kMask]), l);
    for (uint32_t k = 0; k < i.count; ++k)
      if (i.operands[k].given)
        put(warp.out(i.operands[k]), l, uint32_t(whole >> (8 * i.bytes * k) & mask));
  });
}

template <class Whole>
void pack(Warp& warp, const Instruction& i, Lanes lanes) {
  const uint64_t mask = (uint64_t{1} << (8 * i.bytes)) - 1;
  each(lanes, [&](int l) {
    uint64_t whole = 0;
    for (uint32_t k = 0; k < i.count; ++k)
      whole |= (get<uint32_t>(warp.in(i.operands[k]), l) & mask) << (8 * i.bytes * k);
    put(warp.out(i.operands[kMask]), l, Whole(whole));
  });
}

// A generic address and back.
void move_window(Warp& warp, const Instruction& i, Lanes lanes) {
  each(lanes, [&](int l) {
    const uint64_t a = get<uint64_t>(warp.in(i.operands[1]), l);
    put(warp.out(i.operands[0]), l, a + uint64_t(i.offset));
  });
}

void decode_parts(Decoder& decoder, const Statement& s, Instruction& i, Type type, bool unpacks) {
  const Term& parts = s.terms[unpacks ? 0 : 1];
  decoder.list(s, parts, 'w', i, 0);
  i.count = uint8_t(parts.parts.size());
  i.bytes = type.bytes / i.count;
  i.operands[kMask] = decoder.operand(s, unpacks ? 1 : 0, type.shape());
  const bool wide = type.bytes == 8;
  i.run = unpacks ? (wide ? unpack<uint64_t> : unpack<uint32_t>)
                  : (wide ? pack<uint64_t> : pack<uint32_t>);
}

}  // namespace

bool decode_moves(Decoder& decoder, const Statement& s, Instruction& i) {
  if (s.words[0] == "cvta") {
    const uint64_t window = s.has("shared") || s.has("shared::cta") ? kSharedWindow
                            : s.has("local")                        ? kLocalWindow
                                                                    : 0;
    i.offset = int64_t(s.has("to") ? 0 - window : window);
    i.operands[0] = decoder.operand(s, 0, 'l');
    i.operands[1] = decoder.operand(s, 1, 'l');
    i.run = window == 0 ? copy<uint64_t> : move_window;
    return true;
  }
  if (s.words[0] != "mov" || s.words.back() == "pred") return false;
  const Type type = type_of(s.words.back());
  if (type.bytes == 0 || s.terms.size() != 2) decoder.refuse(s, "does not know " + s.opcode);
  const bool unpacks = s.terms[0].kind == Term::list, packs = s.terms[1].kind == Term::list;
  if (unpacks || packs) {
    decode_parts(decoder, s, i, type, unpacks);
    return true;
  }
  i.operands[0] = decoder.operand(s, 0, type.shape());
  i.operands[1] = decoder.operand(s, 1, type.shape());
  i.run = type.bytes == 8 ? copy<uint64_t> : type.bytes == 4 ? copy<uint32_t> : copy<uint16_t>;
  return true;
}

}  // namespace ptx
