// ld and st in all spaces, with vectors and memory orders, and fences.
#include "decode.hpp"
#include "synchronization.hpp"

namespace ptx {

void order_access(Warp& warp, const Instruction& i, int lane, const void* at, bool reads,
                  bool writes) {
  auto& released = warp.launch().released;
  const auto key = reinterpret_cast<uintptr_t>(at);
  if (reads && !released.empty()) {
    const auto found = released.find(key);
    if (found != released.end()) {
      if (i.acquires)
        warp.order.acquire(lane, found->second);
      else
        warp.order.read_relaxed(lane, found->second);
    }
  }
  if (!writes) return;
  if (i.releases)
    learn(released[key], warp.order.release(lane));
  else if (const Knowledge* fenced = warp.order.fenced(lane))
    learn(released[key], *fenced);
}

namespace {

// T is the type in memory. Registers of 64 bits may be wider than it.
template <class T>
void put_loaded(Warp& warp, const Operand& to, int lane, const char* from, bool wide) {
  T value;
  std::memcpy(&value, from, sizeof value);
  if (!to.given) return;
  if (wide && sizeof(T) < 8)
    put(warp.out(to), lane, uint64_t(int64_t(value)));
  else
    put(warp.out(to), lane, value);
}

enum Mode : uint8_t { narrow, wide_register };

template <class T>
void load(Warp& warp, const Instruction& i, Lanes lanes) {
  const Touch touch{true, false, i.strong};
  each(lanes, [&](int l) {
    const char* from = warp.reach(i, l, i.space, warp.address(i, l), i.bytes * i.count, touch);
    for (uint32_t k = 0; k < i.count; ++k)
      put_loaded<T>(warp, i.operands[k], l, from + k * sizeof(T), i.mode == wide_register);
    if (i.strong) order_access(warp, i, l, from, true, false);
  });
}

template <class T>
void load_parameter(Warp& warp, const Instruction& i, Lanes lanes) {
  const auto& all = warp.launch().parameters;
  each(lanes, [&](int l) {
    const uint64_t at = warp.address(i, l);
    if (at > all.size() || all.size() - at < i.bytes * i.count)
      warp.fault(i, l, "reads behind its parameters");
    for (uint32_t k = 0; k < i.count; ++k)
      put_loaded<T>(warp, i.operands[k], l, all.data() + at + k * sizeof(T),
                    i.mode == wide_register);
  });
}

template <class T>
void store(Warp& warp, const Instruction& i, Lanes lanes) {
  const Touch touch{false, true, i.strong};
  each(lanes, [&](int l) {
    char* to = warp.reach(i, l, i.space, warp.address(i, l), i.bytes * i.count, touch);
    for (uint32_t k = 0; k < i.count; ++k) {
      const char* from = warp.in(i.operands[k]);
      const T value = i.mode == wide_register ? T(get<uint64_t>(from, l)) : get<T>(from, l);
      std::memcpy(to + k * sizeof(T), &value, sizeof value);
    }
    if (i.strong) order_access(warp, i, l, to, false, true);
  });
}

void fence(Warp& warp, const Instruction&, Lanes lanes) {
  each(lanes, [&](int l) { warp.order.fence(l); });
}

using Run = void (*)(Warp&, const Instruction&, Lanes);

Run loading(Type type, bool parameter) {
  const auto choose = [&](auto one) -> Run {
    using T = decltype(one);
    return parameter ? load_parameter<T> : load<T>;
  };
  const bool sign = type.letter == 's';
  switch (type.bytes) {
    case 1: return sign ? choose(int8_t()) : choose(uint8_t());
    case 2: return sign ? choose(int16_t()) : choose(uint16_t());
    case 4: return sign ? choose(int32_t()) : choose(uint32_t());
    default: return choose(uint64_t());
  }
}

Run storing(uint32_t bytes) {
  return bytes == 1   ? store<uint8_t>
         : bytes == 2 ? store<uint16_t>
         : bytes == 4 ? store<uint32_t>
                      : store<uint64_t>;
}

}  // namespace

Space space_of(const Statement& s) {
  for (const std::string& word : s.words) {
    if (word == "global" || word == "const") return Space::global;
    if (word == "shared" || word == "shared::cta") return Space::shared;
    if (word == "local") return Space::local;
  }
  return Space::generic;
}

bool decode_memory(Decoder& decoder, const Statement& s, Instruction& i) {
  const std::string& first = s.words[0];
  if (first == "membar" || first == "fence") {
    i.work = Work::barrier;
    i.run = fence;
    return true;
  }
  if (first == "prefetch" || first == "prefetchu") {
    i.run = [](Warp&, const Instruction&, Lanes) {};
    return true;
  }
  const bool loads = first == "ld" || first == "ldu";
  if (!loads && first != "st") return false;
  const Type type = type_of(s.words.back());
  if (type.bytes == 0 || s.terms.size() < 2) decoder.refuse(s, "does not know " + s.opcode);
  const Term& values = s.terms[loads ? 0 : 1];
  const Term& one = values.kind == Term::list ? values.parts[0] : values;
  const bool wide = one.kind == Term::name && one.text != "_" && decoder.shape_of(s, one) == 'l';
  i.count = uint8_t(values.kind == Term::list ? values.parts.size() : 1);
  i.bytes = type.bytes;
  i.mode = wide && type.bytes < 8 ? wide_register : narrow;
  i.space = space_of(s);
  i.strong = s.has("volatile") || s.has("relaxed") || s.has("acquire") || s.has("release");
  i.acquires = s.has("acquire");
  i.releases = s.has("release");
  decoder.list(s, values, wide ? 'l' : type.shape(), i, 0);
  decoder.address(s, loads ? 1 : 0, i);
  const bool parameter = s.has("param") || s.has("param::entry");
  i.work = parameter ? Work::move : loads ? Work::load : Work::store;
  i.run = loads ? loading(type, parameter) : storing(type.bytes);
  return true;
}

}  // namespace ptx
