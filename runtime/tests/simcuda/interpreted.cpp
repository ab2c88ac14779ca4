#include "interpreted.hpp"

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "ptx.hpp"
#include "world.hpp"

namespace simcuda {
namespace {

bool wanted() {
  const char* how = std::getenv("ANOCO_SIM");
  if (how == nullptr || how[0] == 0) return false;
  if (std::strcmp(how, "ptx") != 0) misuse(std::string("ANOCO_SIM can be ptx, not ") + how);
  return true;
}

const ptx::Module& shipped() {
  static const ptx::Module* const only = [] {
    const char* name = std::getenv("ANOCO_PTX");
    std::ifstream file(name != nullptr ? name : "");
    std::stringstream text;
    text << file.rdbuf();
    if (!file) misuse("ANOCO_SIM=ptx needs the name of a PTX file in ANOCO_PTX");
    try {
      return new ptx::Module(text.str(), name);
    } catch (const ptx::Fault& fault) {
      misuse(fault.what());
    }
  }();
  return *only;
}

void interpret(const simt::Kernel& kernel, simt::Size grid, simt::Size block, void* const* values) {
  const ptx::Kernel* found = shipped().find(kernel.name);
  if (found == nullptr) misuse(std::string(kernel.name) + ": not in the PTX file");
  if (ptx::parameters_of(*found) != kernel.parameters)
    misuse(std::string(kernel.name) + ": other parameters in the PTX file");
  ptx::Memory memory;
  for (size_t k = 0; k < kernel.parameters.size(); ++k) {
    uint64_t value = 0;
    if (kernel.parameters[k] != sizeof value) continue;
    std::memcpy(&value, values[k], sizeof value);
    const Allocation* there = World::get().find(value);
    if (there != nullptr) memory.add(reinterpret_cast<void*>(there->address), there->size);
  }
  ptx::Options options;
  options.seed = uint64_t(World::get().launches);
  try {
    ptx::launch(*found, {grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, 0, values, memory,
                options);
  } catch (const ptx::Fault& fault) {
    misuse(fault.what());
  }
}

}  // namespace

void launch(const simt::Kernel& kernel, simt::Size grid, simt::Size block, void* const* values) {
  static const bool by_interpreter = wanted();
  if (by_interpreter)
    interpret(kernel, grid, block, values);
  else
    simt::launch(kernel, grid, block, 0, values);
}

}  // namespace simcuda
