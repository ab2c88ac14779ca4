// An interpreter of PTX, the code that NVIDIA's compiler makes of the kernels in runtime/cuda and
// from which it makes the code of every device. It runs what ships, instruction by instruction: 32
// lanes of a warp together, warps and blocks in a seeded order that changes at any instruction, and
// the two sides of a branch in any order.
//
// It throws Fault where a kernel does what PTX does not define: memory outside of an allocation,
// an address that is not aligned, shared or local memory that nobody has written, a barrier that
// not all threads reach, a shuffle whose lanes do not all come, shared memory that an unfinished
// cp.async writes, and two accesses to the same bytes that nothing orders (a race).
//
// Known limits: barriers are those of the whole block (no named subsets), there are no calls, and
// a write after reads by several blocks is a race even where fences order them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace ptx {

// What is wrong, where: kernel, block, thread, line of the PTX.
struct Fault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Size {
  unsigned x = 1, y = 1, z = 1;
};

// How mma adds: every sum rounded once from float64, or as tensor cores do, which align the terms
// of a step to the largest and cut off what is below.
enum class TensorSums { rounded, truncating };

struct Options {
  uint64_t seed = 1;  // of the order in which warps and blocks run
  TensorSums tensor_sums = TensorSums::truncating;
};

// Kinds of work that are counted.
enum class Work : uint8_t {
  integer,
  float16,
  float32,
  float64,
  tensor,
  convert,
  move,
  compare,
  load,
  store,
  atomic,
  async_copy,
  shuffle,
  barrier,
  branch
};
constexpr int kWorks = int(Work::branch) + 1;
const char* name_of(Work work);

// Sums over all lanes that took part.
struct Counters {
  uint64_t instructions[kWorks] = {};
  uint64_t flops = 0, tensor_flops = 0;
  uint64_t global_read = 0, global_written = 0;  // bytes
  uint64_t shared_read = 0, shared_written = 0;
};

// The allocations that kernels may touch, at their addresses in this process.
class Memory {
 public:
  Memory();
  ~Memory();
  void add(const void* start, size_t bytes);
  void remove(const void* start);

  struct Tables;
  Tables& tables() { return *tables_; }

 private:
  std::unique_ptr<Tables> tables_;
};

struct Kernel;

// The kernels of a PTX file.
class Module {
 public:
  // `name` is what messages call it. Throws Fault at the first line that it does not understand.
  Module(const std::string& text, const std::string& name);
  ~Module();
  const Kernel* find(const std::string& name) const;  // null: there is none
  std::vector<const Kernel*> kernels() const;

  struct Contents;

 private:
  std::unique_ptr<Contents> contents_;
};

const std::string& name_of(const Kernel& kernel);
std::vector<size_t> parameters_of(const Kernel& kernel);  // bytes of each, in order

// Runs a kernel to its end. values[i] points at the i-th parameter, as cuLaunchKernel has it.
Counters launch(const Kernel& kernel, Size grid, Size block, size_t shared, void* const* values,
                Memory& memory, const Options& options = {});

}  // namespace ptx
