#include "decode.hpp"

#include <algorithm>

#include "operations.hpp"

namespace ptx {
namespace {

const std::map<std::string, Special>& special_names() {
  static const std::map<std::string, Special> names = {{"%tid.x", Special::tid_x},
                                                       {"%tid.y", Special::tid_y},
                                                       {"%tid.z", Special::tid_z},
                                                       {"%ntid.x", Special::ntid_x},
                                                       {"%ntid.y", Special::ntid_y},
                                                       {"%ntid.z", Special::ntid_z},
                                                       {"%ctaid.x", Special::ctaid_x},
                                                       {"%ctaid.y", Special::ctaid_y},
                                                       {"%ctaid.z", Special::ctaid_z},
                                                       {"%nctaid.x", Special::nctaid_x},
                                                       {"%nctaid.y", Special::nctaid_y},
                                                       {"%nctaid.z", Special::nctaid_z},
                                                       {"%laneid", Special::laneid},
                                                       {"%warpid", Special::warpid},
                                                       {"%lanemask_eq", Special::lanemask_eq},
                                                       {"%lanemask_lt", Special::lanemask_lt},
                                                       {"%lanemask_le", Special::lanemask_le},
                                                       {"%lanemask_gt", Special::lanemask_gt},
                                                       {"%lanemask_ge", Special::lanemask_ge}};
  return names;
}

size_t bytes_of(char shape) { return shape == 'p' ? 8 : shape == 'l' ? 8 * kWarp : 4 * kWarp; }

// setp.lt.and.s32 p|q, a, b, c: the opcode without the boolean operation.
void decode_setp(Decoder& decoder, const Statement& s, Instruction& i, std::string& opcode) {
  static const char* const names[] = {"", ".and.", ".or.", ".xor."};
  for (uint8_t mode = 1; mode < 4; ++mode) {
    const size_t at = opcode.find(names[mode]);
    if (at == std::string::npos) continue;
    i.mode = mode;
    opcode = opcode.substr(0, at + 1) + opcode.substr(at + std::strlen(names[mode]));
  }
  if (s.terms[0].second.empty()) return;
  Term second;
  second.text = s.terms[0].second;
  i.operands[4] = decoder.operand(s, second, 'p');
}

}  // namespace

bool Statement::has(const std::string& word) const {
  return std::find(words.begin(), words.end(), word) != words.end();
}

Type type_of(const std::string& word) {
  static const std::map<std::string, Type> types = {
      {"b8", {1, 'b'}},    {"u8", {1, 'u'}},     {"s8", {1, 's'}},  {"b16", {2, 'b'}},
      {"u16", {2, 'u'}},   {"s16", {2, 's'}},    {"f16", {2, 'f'}}, {"bf16", {2, 'f'}},
      {"b32", {4, 'b'}},   {"u32", {4, 'u'}},    {"s32", {4, 's'}}, {"f32", {4, 'f'}},
      {"b64", {8, 'b'}},   {"u64", {8, 'u'}},    {"s64", {8, 's'}}, {"f64", {8, 'f'}},
      {"f16x2", {4, 'f'}}, {"bf16x2", {4, 'f'}}, {"tf32", {4, 'f'}}};
  const auto found = types.find(word);
  return found == types.end() ? Type{0, ' '} : found->second;
}

Decoder::Decoder(Kernel& kernel, const std::map<std::string, uint64_t>& of_module)
    : kernel_(kernel), symbols_(of_module), registers_(1) {}

void Decoder::refuse(const Statement& s, const std::string& why) const {
  throw Fault(kernel_.name + ", " + kernel_.file + " line " + std::to_string(s.line) + ": " + why);
}

uint32_t Decoder::reserve(char shape) {
  const size_t place = kernel_.register_bytes;
  kernel_.register_bytes += bytes_of(shape);
  return uint32_t(place);
}

void Decoder::declare_register(const std::string& name, const std::string& type, uint32_t line) {
  const Type known = type_of(type.substr(1));
  Statement here;
  here.line = line;
  if (type != ".pred" && known.bytes == 0) refuse(here, "registers of " + type);
  const char shape = type == ".pred" ? 'p' : known.shape();
  registers_.back()[name] = {reserve(shape), shape};
}

const Decoder::Register* Decoder::find(const std::string& name) const {
  for (auto scope = registers_.rbegin(); scope != registers_.rend(); ++scope) {
    const auto found = scope->find(name);
    if (found != scope->end()) return &found->second;
  }
  return nullptr;
}

const Decoder::Register* Decoder::special(const std::string& name) {
  const auto known = special_names().find(name);
  if (known == special_names().end()) return nullptr;
  const auto found = specials_.find(name);
  if (found != specials_.end()) return &found->second;
  const uint32_t place = reserve('w');
  kernel_.specials.emplace_back(known->second, place);
  return &(specials_[name] = {place, 'w'});
}

uint32_t Decoder::constant(uint64_t bits, char shape) {
  const auto [found, added] = constants_.emplace(std::pair(bits, shape), 0);
  if (!added) return found->second;
  const size_t place = kernel_.constants.size();
  if (shape == 'l')
    kernel_.constants.insert(kernel_.constants.end(), kWarp, bits);
  else if (shape == 'w')
    kernel_.constants.insert(kernel_.constants.end(), kWarp / 2, bits << 32 | (bits & 0xffffffffu));
  else
    kernel_.constants.push_back(bits != 0 ? ~uint64_t{0} : 0);
  return found->second = uint32_t(place * 8);
}

char Decoder::shape_of(const Statement& s, const Term& term) const {
  const Register* known = find(term.text);
  if (known == nullptr) refuse(s, "no register " + term.text);
  return known->shape;
}

// Declarations come before the first statement, so that it is known where dynamic memory begins.
bool Decoder::find_symbol(const std::string& name, uint64_t& address) const {
  const auto found = symbols_.find(name);
  if (found == symbols_.end()) return false;
  address = found->second == kDynamicShared ? (kernel_.shared_bytes + 15) / 16 * 16 : found->second;
  return true;
}

Operand Decoder::operand(const Statement& s, const Term& term, char shape) {
  if (term.kind == Term::number) return {constant(term.bits, shape), true, false, true};
  if (term.kind != Term::name) refuse(s, "an operand of " + s.opcode);
  if (term.text == "_") return {};
  if (term.text == "WARP_SZ") return {constant(kWarp, shape), true, false, true};
  const Register* known = find(term.text);
  if (known == nullptr) known = special(term.text);
  if (known != nullptr) {
    if (known->shape != shape)
      refuse(s, term.text + " has another size than " + s.opcode + " expects");
    return {known->place, false, term.inverted, true};
  }
  uint64_t place = 0;
  if (!find_symbol(term.text, place)) refuse(s, "nothing is named " + term.text);
  return {constant(place, shape), true, false, true};
}

Operand Decoder::operand(const Statement& s, size_t index, char shape) {
  if (index >= s.terms.size()) refuse(s, s.opcode + " has too few operands");
  return operand(s, s.terms[index], shape);
}

void Decoder::list(const Statement& s, const Term& term, char shape, Instruction& i, size_t first) {
  const std::vector<Term> alone{term};
  const std::vector<Term>& parts = term.kind == Term::list ? term.parts : alone;
  if (first + parts.size() > kMostOperands) refuse(s, "a list that is too long");
  for (size_t k = 0; k < parts.size(); ++k) i.operands[first + k] = operand(s, parts[k], shape);
}

void Decoder::address(const Statement& s, size_t index, Instruction& i) {
  if (index >= s.terms.size() || s.terms[index].kind != Term::address)
    refuse(s, s.opcode + " has no address");
  const Term& term = s.terms[index];
  i.offset = term.offset;
  if (term.text.empty()) return;
  uint64_t place = 0;
  if (find_symbol(term.text, place)) {
    i.offset += int64_t(place);
    return;
  }
  const char shape = shape_of(s, term);
  Term base = term;
  base.kind = Term::name;
  i.address = operand(s, base, shape);
  i.wide_address = shape == 'l';
}

void Decoder::set_label(const std::string& name) { labels_[name] = uint32_t(kernel_.code.size()); }

void Decoder::set_targets(const std::string& name, const std::vector<std::string>& labels) {
  tables_[name] = labels;
}

void Decoder::decode(const Statement& s, Instruction& i) {
  const std::string& first = s.words[0];
  if (first == "bra") {
    i.kind = Kind::branch;
    i.work = Work::branch;
    branches_.emplace_back(kernel_.code.size(), s);
    return;
  }
  if (first == "brx") {
    i.kind = Kind::table;
    i.work = Work::branch;
    i.operands[0] = operand(s, 0, 'w');
    branches_.emplace_back(kernel_.code.size(), s);
    return;
  }
  if (first == "ret" || first == "exit") {
    i.kind = Kind::end;
    i.work = Work::branch;
    return;
  }
  if (first == "trap") {
    i.run = [](Warp& warp, const Instruction& at, Lanes lanes) {
      warp.fault(at, __builtin_ctz(lanes), "traps");
    };
    return;
  }
  for (const auto decode_some :
       {decode_moves, decode_memory, decode_atomics, decode_copies, decode_warp, decode_tensor})
    if (decode_some(*this, s, i)) return;

  std::string opcode = s.opcode;
  if (first == "setp") decode_setp(*this, s, i, opcode);
  const bool from_register = first == "cvt" && s.terms.size() == 2 && find(s.terms[1].text);
  if (from_register && shape_of(s, s.terms[1]) == 'l' && type_of(s.words.back()).bytes < 8)
    opcode += kOfWide;
  const auto found = operations().find(opcode);
  if (found == operations().end()) refuse(s, "the interpreter does not know " + s.opcode);
  const Operation& operation = found->second;
  const size_t count = operation.shape.size() - (first == "setp" && i.mode == 0 ? 1 : 0);
  if (s.terms.size() != count) refuse(s, s.opcode + " with another number of operands");
  for (size_t k = 0; k < count; ++k) i.operands[k] = operand(s, k, operation.shape[k]);
  i.run = operation.run;
  i.work = operation.work;
  i.flops = operation.flops;
}

void Decoder::add(const Statement& statement) {
  Instruction i;
  i.line = statement.line;
  if (statement.has_predicate) i.predicate = operand(statement, statement.predicate, 'p');
  decode(statement, i);
  kernel_.code.push_back(std::move(i));
}

void Decoder::finish() {
  const auto at = [&](const Statement& s, const std::string& label) {
    const auto found = labels_.find(label);
    if (found == labels_.end()) refuse(s, "no label " + label);
    return found->second;
  };
  for (const auto& [index, s] : branches_) {
    Instruction& i = kernel_.code[index];
    if (i.kind == Kind::branch)
      i.target = at(s, s.terms[0].text);
    else
      for (const std::string& label : tables_[s.terms[1].text]) i.targets.push_back(at(s, label));
  }
  Instruction end;  // a body may end without ret
  end.kind = Kind::end;
  end.work = Work::branch;
  end.line = kernel_.code.empty() ? 1 : kernel_.code.back().line;
  kernel_.code.push_back(end);
}

}  // namespace ptx
