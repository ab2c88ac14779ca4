// atom and red.
#include <algorithm>

#include "decode.hpp"
#include "half.hpp"
#include "synchronization.hpp"

namespace ptx {
namespace {

enum Action : uint8_t { add, min, max, exch, cas, inc, dec, bit_and, bit_or, bit_xor };

template <class T>
T result(uint8_t action, T old, T b, T c) {
  switch (action) {
    case add:
      if constexpr (std::is_integral_v<T>)
        return T(std::make_unsigned_t<T>(old) + std::make_unsigned_t<T>(b));
      else
        return old + b;
    case min: return std::min(old, b);
    case max: return std::max(old, b);
    case exch: return b;
    case cas: return old == b ? c : old;
    default: break;
  }
  if constexpr (std::is_integral_v<T>) switch (action) {
      case inc: return old >= b ? T(0) : T(old + 1);
      case dec: return old == 0 || old > b ? b : T(old - 1);
      case bit_and: return T(old & b);
      case bit_or: return T(old | b);
      default: return T(old ^ b);
    }
  return old;
}

// operands: what was there (not of red), b, c.
template <class T>
void update(Warp& warp, const Instruction& i, Lanes lanes) {
  each(lanes, [&](int l) {
    char* at = warp.reach(i, l, i.space, warp.address(i, l), i.bytes, {true, true, true});
    T old;
    std::memcpy(&old, at, sizeof old);
    const T b = get<T>(warp.in(i.operands[1]), l);
    const T c = i.operands[2].given ? get<T>(warp.in(i.operands[2]), l) : T();
    const T next = result(i.mode, old, b, c);
    std::memcpy(at, &next, sizeof next);
    if (i.operands[0].given) put(warp.out(i.operands[0]), l, old);
    order_access(warp, i, l, at, true, true);
  });
}

}  // namespace

bool decode_atomics(Decoder& decoder, const Statement& s, Instruction& i) {
  const bool returns = s.words[0] == "atom";
  if (!returns && s.words[0] != "red") return false;
  static const std::map<std::string, uint8_t> actions = {
      {"add", add}, {"min", min}, {"max", max},     {"exch", exch}, {"cas", cas},
      {"inc", inc}, {"dec", dec}, {"and", bit_and}, {"or", bit_or}, {"xor", bit_xor}};
  bool known = false;
  for (const std::string& word : s.words) {
    const auto found = actions.find(word);
    if (found == actions.end()) continue;
    i.mode = found->second;
    known = true;
  }
  const Type type = type_of(s.words.back());
  if (!known || type.bytes < 4 || s.words.back() == "f16x2")
    decoder.refuse(s, "the interpreter does not know " + s.opcode);
  i.work = Work::atomic;
  i.space = space_of(s);
  i.bytes = type.bytes;
  i.strong = true;
  i.acquires = s.has("acquire") || s.has("acq_rel");
  i.releases = s.has("release") || s.has("acq_rel");
  const char shape = type.shape();
  const size_t first = returns ? 1 : 0;
  if (returns) i.operands[0] = decoder.operand(s, 0, shape);
  decoder.address(s, first, i);
  i.operands[1] = decoder.operand(s, first + 1, shape);
  if (i.mode == cas) i.operands[2] = decoder.operand(s, first + 2, shape);
  const bool sign = type.letter == 's';
  if (type.letter == 'f')
    i.run = type.bytes == 8 ? update<double> : update<float>;
  else if (type.bytes == 8)
    i.run = sign ? update<int64_t> : update<uint64_t>;
  else
    i.run = sign ? update<int32_t> : update<uint32_t>;
  return true;
}

}  // namespace ptx
