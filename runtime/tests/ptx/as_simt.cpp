// The interpreter behind the interface of the emulation (tests/simt/simt.hpp): a test of kernels
// that is linked with this runs the PTX instead. ANOCO_PTX names the file, or several with colons
// between them, of which a later one replaces kernels of an earlier one; ANOCO_PTX_SEED is the
// order of threads. With ANOCO_PTX_COUNTERS set, what each kernel did is written to that file at
// the end.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>

#include "host_memory.hpp"
#include "ptx.hpp"
#include "simt.hpp"

namespace simt {
namespace {

[[noreturn]] void fail(const char* why) {
  std::fprintf(stderr, "ptx: %s\n", why);
  std::fflush(stderr);
  std::_Exit(1);
}

struct Loaded {
  std::vector<std::unique_ptr<ptx::Module>> modules;
  std::map<std::string, const ptx::Kernel*> by_name;
  std::vector<Kernel> kernels;
  std::map<std::string, ptx::Counters> counted;

  Loaded() {
    const char* files = std::getenv("ANOCO_PTX");
    if (files == nullptr) fail("ANOCO_PTX does not name a file");
    std::stringstream names(files);
    for (std::string name; std::getline(names, name, ':');) {
      std::ifstream file(name);
      std::stringstream text;
      text << file.rdbuf();
      if (!file) fail((name + " cannot be read").c_str());
      modules.push_back(
          std::make_unique<ptx::Module>(text.str(), name.substr(name.find_last_of('/') + 1)));
      for (const ptx::Kernel* kernel : modules.back()->kernels())
        by_name[ptx::name_of(*kernel)] = kernel;
    }
    for (const auto& [name, kernel] : by_name)
      kernels.push_back({name.c_str(), ptx::parameters_of(*kernel), nullptr});
  }
};

Loaded& loaded() {
  static Loaded* const once = [] {
    try {
      return new Loaded;
    } catch (const ptx::Fault& fault) {
      fail(fault.what());
    }
  }();
  return *once;
}

uint64_t launches = 0;
Order order_of_threads = Order::forward;

void write_counters() {
  std::ofstream out(std::getenv("ANOCO_PTX_COUNTERS"));
  for (const auto& [name, c] : loaded().counted) {
    out << name << " flops " << c.flops << " tensor_flops " << c.tensor_flops << " global_read "
        << c.global_read << " global_written " << c.global_written << " shared_read "
        << c.shared_read << " shared_written " << c.shared_written;
    for (int k = 0; k < ptx::kWorks; ++k) {
      std::string work = ptx::name_of(ptx::Work(k));
      if (work == "async copy") work = "async_copy";
      out << ' ' << work << ' ' << c.instructions[k];
    }
    out << '\n';
  }
}

void add(ptx::Counters& to, const ptx::Counters& more) {
  to.flops += more.flops;
  to.tensor_flops += more.tensor_flops;
  to.global_read += more.global_read;
  to.global_written += more.global_written;
  to.shared_read += more.shared_read;
  to.shared_written += more.shared_written;
  for (int k = 0; k < ptx::kWorks; ++k) to.instructions[k] += more.instructions[k];
}

}  // namespace

const std::vector<Kernel>& kernels() { return loaded().kernels; }

const Kernel* find(const char* name) {
  for (const Kernel& kernel : kernels())
    if (std::string(kernel.name) == name) return &kernel;
  return nullptr;
}

void run_threads(Order order) { order_of_threads = order; }

void launch(const Kernel& kernel, Size grid, Size block, size_t shared, void* const* values) {
  static std::mutex one_at_a_time;
  const std::lock_guard<std::mutex> lock(one_at_a_time);
  const char* seed = std::getenv("ANOCO_PTX_SEED");
  if (launches == 0 && std::getenv("ANOCO_PTX_COUNTERS") != nullptr) std::atexit(write_counters);
  ptx::Options options;
  options.seed = (seed != nullptr ? std::strtoull(seed, nullptr, 10) : 0) + 2 * launches++ +
                 (order_of_threads == Order::forward ? 1 : 0);
  const HostMemory memory;
  try {
    add(loaded().counted[kernel.name],
        ptx::launch(*loaded().by_name.at(kernel.name), {grid.x, grid.y, grid.z},
                    {block.x, block.y, block.z}, shared, values, memory.get(), options));
  } catch (const ptx::Fault& fault) {
    fail(fault.what());
  }
}

}  // namespace simt
