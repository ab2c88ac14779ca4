// Runs the blocks of a grid: some of them at the same time, their warps in a random order that may
// change after every instruction.
#include <algorithm>
#include <cstdio>

#include "warp.hpp"

namespace ptx {
namespace {

constexpr size_t kResident = 3;  // blocks that run at the same time

void count(const Launch& launch, Counters& out) {
  const auto& code = launch.kernel->code;
  for (size_t k = 0; k < code.size(); ++k) {
    const Instruction& i = code[k];
    const uint64_t lanes = launch.executed[k], bytes = lanes * i.bytes * i.count;
    out.instructions[size_t(i.work)] += lanes;
    (i.work == Work::tensor ? out.tensor_flops : out.flops) += lanes * i.flops;
    const bool shared = i.space == Space::shared;
    if (i.work == Work::load || i.work == Work::atomic)
      (shared ? out.shared_read : out.global_read) += bytes;
    if (i.work == Work::store || i.work == Work::atomic)
      (shared ? out.shared_written : out.global_written) += bytes;
    if (i.work == Work::async_copy) {
      out.global_read += bytes;
      out.shared_written += bytes;
    }
  }
}

void check(const Kernel& kernel, Size grid, Size block, size_t shared) {
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  const uint64_t blocks = uint64_t{grid.x} * grid.y * grid.z;
  if (threads == 0 || threads > kernel.most_threads || blocks == 0 ||
      blocks > (1u << (32 - kThreadBits)) || kernel.shared_bytes + shared > 227 * 1024)
    throw Fault(kernel.name + ": cannot run as " + std::to_string(blocks) + " blocks of " +
                std::to_string(threads) + " threads with " +
                std::to_string(kernel.shared_bytes + shared) + " bytes of shared memory");
}

// A warp that can run; every block has one.
Warp& choose(const std::vector<Block*>& resident, Random& random) {
  auto& warps = resident[random.below(uint32_t(resident.size()))]->warps;
  size_t at = random.below(uint32_t(warps.size()));
  while (!warps[at].can_run()) at = (at + 1) % warps.size();
  return warps[at];
}

}  // namespace

const char* name_of(Work work) {
  static const char* const names[] = {"integer", "float16",    "float32", "float64", "tensor",
                                      "convert", "move",       "compare", "load",    "store",
                                      "atomic",  "async copy", "shuffle", "barrier", "branch"};
  return names[size_t(work)];
}

std::string Launch::where(const Block& in, const Instruction& i) const {
  const std::string& text = (*kernel->lines)[i.line - 1];
  const size_t first = std::min(text.find_first_not_of(" \t"), text.size());
  std::string shown = text.substr(first);
  std::replace(shown.begin(), shown.end(), '\t', ' ');
  return kernel->name + ", " + kernel->file + " line " + std::to_string(i.line) + " `" + shown +
         "`, block " + std::to_string(in.index);
}

bool Block::can_run() const {
  return std::any_of(warps.begin(), warps.end(), [](const Warp& w) { return w.can_run(); });
}

bool Block::ended() const {
  return std::all_of(warps.begin(), warps.end(), [](const Warp& w) { return w.ended(); });
}

void Block::start(Launch& given, uint32_t number) {
  launch = &given;
  index = number;
  const Size& g = given.grid;
  at = {number % g.x, number / g.x % g.y, number / (g.x * g.y)};
  order = BlockOrder();
  order.index = number;
  order.barrier = given.clock;
  const size_t bytes = given.kernel->shared_bytes + given.dynamic_shared;
  shared.assign(bytes, char(0xa5));
  shared_region = Region();
  shared_region.bytes = bytes;
  shared_region.states.assign(bytes, ByteState::unwritten);
  const uint32_t threads = given.block.x * given.block.y * given.block.z;
  warps.resize((threads + kWarp - 1) / kWarp);
  for (uint32_t w = 0; w < warps.size(); ++w) warps[w].start(this, w, threads);
}

void Block::meet() {
  const Instruction* barrier = nullptr;
  const uint32_t threads = launch->block.x * launch->block.y * launch->block.z;
  uint32_t came = 0, votes = 0;
  bool apart = false;
  for (const Warp& warp : warps) {
    const Instruction* at_one = warp.at_barrier();
    if (at_one == nullptr) continue;
    apart = apart || (barrier != nullptr && barrier != at_one);
    barrier = at_one;
    came += uint32_t(__builtin_popcount(warp.lanes()));
    if (at_one->vote != Vote::none)
      votes += uint32_t(__builtin_popcount(warp.lanes() & warp.bits(at_one->operands[1])));
  }
  if (barrier == nullptr || apart || came != threads) {
    uint32_t live = 0;
    std::string waiting;
    for (const Warp& warp : warps) {
      live += uint32_t(__builtin_popcount(warp.lanes()));
      waiting += warp.describe();
    }
    const Instruction& i = barrier != nullptr ? *barrier : launch->kernel->code[0];
    throw Fault(launch->where(*this, i) +
                (apart ? ": its warps meet at different barriers"
                       : ": threads wait for others that never come") +
                "; " + std::to_string(threads - live) + " of " + std::to_string(threads) +
                " have ended" + waiting);
  }
  uint32_t clock = 0;
  for (Warp& warp : warps) {
    clock = std::max(clock, warp.order.latest());
    warp.order.give_to_block();
  }
  order.barrier = clock + 1;
  launch->last_clock = std::max(launch->last_clock, clock + 1);
  for (Warp& warp : warps) {
    warp.order.set_clocks(order.barrier);
    const Lanes lanes = warp.lanes();
    if (barrier->vote == Vote::count)
      each(lanes, [&](int l) { put(warp.out(barrier->operands[0]), l, votes); });
    else if (barrier->vote != Vote::none)
      warp.set_bits(barrier->operands[0],
                    (barrier->vote == Vote::all ? votes == threads : votes > 0) ? kAllLanes : 0,
                    lanes);
    warp.pass_barrier();
  }
}

Counters launch(const Kernel& kernel, Size grid, Size block, size_t shared, void* const* values,
                Memory& memory, const Options& options) {
  check(kernel, grid, block, shared);
  for (const auto& [start, bytes] : kernel.variables)
    if (memory.tables().find(reinterpret_cast<uintptr_t>(start), bytes) == nullptr)
      memory.add(start, bytes);
  Launch launch{
      &kernel, grid, block, shared, &memory.tables(), options, Random(options.seed), {}, {},
      {},      {},   0,     0};
  launch.clock = launch.last_clock = memory.tables().clock;
  launch.parameters.resize(kernel.parameter_bytes);
  for (size_t k = 0; k < kernel.parameters.size(); ++k)
    std::memcpy(launch.parameters.data() + kernel.parameters[k].offset, values[k],
                kernel.parameters[k].bytes);
  launch.executed.resize(kernel.code.size());
  launch.last.resize(kernel.code.size());

  std::vector<uint32_t> waiting(grid.x * grid.y * grid.z);
  for (size_t k = 0; k < waiting.size(); ++k) waiting[k] = uint32_t(waiting.size() - 1 - k);
  if (options.seed % 2 == 0)  // else in order
    for (size_t k = waiting.size(); k > 1; --k)
      std::swap(waiting[k - 1], waiting[launch.random.below(uint32_t(k))]);
  static thread_local std::vector<Block> places;  // their memory is used again
  places.resize(kResident);
  std::vector<Block*> resident;
  for (Block& place : places) {
    if (waiting.empty()) break;
    place.start(launch, waiting.back());
    waiting.pop_back();
    resident.push_back(&place);
  }
  static const uint32_t steps[] = {1, 5, 30, 400};
  while (!resident.empty()) {
    Warp& warp = choose(resident, launch.random);
    Block& running = warp.block();
    warp.run(steps[launch.random.below(4)]);
    launch.last_clock = std::max(launch.last_clock, warp.order.latest());
    if (running.can_run()) continue;
    if (!running.ended()) {
      running.meet();
    } else if (waiting.empty()) {
      resident.erase(std::find(resident.begin(), resident.end(), &running));
    } else {
      running.start(launch, waiting.back());
      waiting.pop_back();
    }
  }
  memory.tables().clock = launch.last_clock + 1;
  Counters out;
  count(launch, out);
  return out;
}

const std::string& name_of(const Kernel& kernel) { return kernel.name; }

std::vector<size_t> parameters_of(const Kernel& kernel) {
  std::vector<size_t> out;
  for (const Parameter& parameter : kernel.parameters) out.push_back(parameter.bytes);
  return out;
}

}  // namespace ptx
