// What the parser makes of a kernel: instructions with a function each, whose operands are places
// in the registers of a warp.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ptx.hpp"

namespace ptx {

class Warp;
struct Instruction;

using Lanes = uint32_t;  // a bit for each lane
constexpr int kWarp = 32;
constexpr Lanes kAllLanes = 0xffffffffu;

// The first byte of a vector: 32 slots of 4 or of 8 bytes, or for predicates one word of bits.
// Immediates are vectors in the kernel's constants.
struct Operand {
  uint32_t place = 0;
  bool constant = false;
  bool inverted = false;  // of predicates: !%p
  bool given = false;
};

enum class Space : uint8_t { global, shared, local, generic };

enum class Kind : uint8_t {
  plain,
  branch,
  table,     // a branch to one of several places
  end,       // ret, exit
  barrier,   // of the block
  together,  // runs when all lanes of its mask are there
};

enum class Vote : uint8_t { none, count, all, any };

constexpr int kMostOperands = 15;  // 14 of mma, and the mask of lanes that come together
constexpr int kMask = kMostOperands - 1;

struct Instruction {
  void (*run)(Warp&, const Instruction&, Lanes) = nullptr;
  Kind kind = Kind::plain;
  Work work = Work::move;
  Space space = Space::global;
  Vote vote = Vote::none;
  bool strong = false, acquires = false, releases = false;  // memory order
  uint8_t count = 1;                                        // numbers of a vector
  uint8_t mode = 0;                                         // what the function makes of it
  uint32_t bytes = 0;                                       // of one number in memory
  uint32_t flops = 0;                                       // of a lane
  uint32_t target = 0;                                      // of a branch
  uint32_t line = 0;
  Operand address;
  bool wide_address = true;  // 64 bits
  int64_t offset = 0;        // added to the address
  Operand from;              // of cp.async: where it reads
  int64_t from_offset = 0;
  Operand predicate;
  Operand operands[kMostOperands];
  std::vector<uint32_t> targets;
};

struct Parameter {
  size_t offset, bytes;
};

enum class Special : uint8_t {
  tid_x,
  tid_y,
  tid_z,
  ntid_x,
  ntid_y,
  ntid_z,
  ctaid_x,
  ctaid_y,
  ctaid_z,
  nctaid_x,
  nctaid_y,
  nctaid_z,
  laneid,
  warpid,
  lanemask_eq,
  lanemask_lt,
  lanemask_le,
  lanemask_gt,
  lanemask_ge
};

struct Kernel {
  std::string name, file;
  std::vector<Parameter> parameters;
  size_t parameter_bytes = 0, shared_bytes = 0, local_bytes = 0, register_bytes = 0;
  uint32_t most_threads = 1024;
  std::vector<Instruction> code;
  std::vector<uint64_t> constants;
  std::vector<std::pair<Special, uint32_t>> specials;     // and their places in the registers
  std::vector<std::pair<const void*, size_t>> variables;  // of the module
  const std::vector<std::string>* lines = nullptr;
};

}  // namespace ptx
