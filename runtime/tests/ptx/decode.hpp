// From statements of PTX to instructions.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "warp.hpp"

namespace ptx {

// An operand as it is written.
struct Term {
  enum Kind { name, number, list, address } kind = name;
  std::string text;         // of a name, or of the name in an address
  std::string second;       // %p|%q
  uint64_t bits = 0;        // of a number
  int64_t offset = 0;       // in an address
  bool inverted = false;    // !%p
  std::vector<Term> parts;  // of a list: {%r1, %r2}
};

struct Statement {
  uint32_t line = 0;
  std::string opcode;
  std::vector<std::string> words;  // the opcode, cut at its dots
  std::vector<Term> terms;
  bool has_predicate = false;
  Term predicate;

  bool has(const std::string& word) const;
};

// The address of dynamic shared memory, which begins behind all that a kernel declares.
constexpr uint64_t kDynamicShared = ~uint64_t{0};

class Decoder {
 public:
  Decoder(Kernel& kernel, const std::map<std::string, uint64_t>& of_module);

  void open_scope() { registers_.emplace_back(); }
  void close_scope() { registers_.pop_back(); }
  void declare_register(const std::string& name, const std::string& type, uint32_t line);
  // A variable or a parameter: its address in its space.
  void declare_symbol(const std::string& name, uint64_t address) { symbols_[name] = address; }
  void set_label(const std::string& name);
  void set_targets(const std::string& name, const std::vector<std::string>& labels);
  void add(const Statement& statement);
  void finish();  // labels become addresses

  // For the decoders of single instructions. The shape is that of Operation.
  Operand operand(const Statement& s, size_t index, char shape);
  Operand operand(const Statement& s, const Term& term, char shape);
  void list(const Statement& s, const Term& term, char shape, Instruction& i, size_t first);
  void address(const Statement& s, size_t index, Instruction& i);
  char shape_of(const Statement& s, const Term& term) const;
  [[noreturn]] void refuse(const Statement& s, const std::string& why) const;

 private:
  struct Register {
    uint32_t place;
    char shape;
  };
  const Register* find(const std::string& name) const;
  const Register* special(const std::string& name);
  uint32_t reserve(char shape);
  bool find_symbol(const std::string& name, uint64_t& address) const;
  uint32_t constant(uint64_t bits, char shape);
  void decode(const Statement& s, Instruction& i);

  Kernel& kernel_;
  std::map<std::string, uint64_t> symbols_;
  std::vector<std::map<std::string, Register>> registers_;
  std::map<std::string, Register> specials_;
  std::map<std::pair<uint64_t, char>, uint32_t> constants_;
  std::map<std::string, uint32_t> labels_;
  std::map<std::string, std::vector<std::string>> tables_;
  std::vector<std::pair<size_t, Statement>> branches_;  // by instruction
};

// The number of bytes and the letter of a type such as "f32"; 0 bytes: it is none.
struct Type {
  uint32_t bytes;
  char letter;  // b, u, s, f
  char shape() const { return bytes == 8 ? 'l' : 'w'; }
};
Type type_of(const std::string& word);

// The space that an opcode names.
Space space_of(const Statement& s);

// Each is for some first words of opcodes, and returns false for others.
bool decode_moves(Decoder& decoder, const Statement& s, Instruction& i);
bool decode_memory(Decoder& decoder, const Statement& s, Instruction& i);
bool decode_atomics(Decoder& decoder, const Statement& s, Instruction& i);
bool decode_copies(Decoder& decoder, const Statement& s, Instruction& i);
bool decode_warp(Decoder& decoder, const Statement& s, Instruction& i);
bool decode_tensor(Decoder& decoder, const Statement& s, Instruction& i);

}  // namespace ptx
