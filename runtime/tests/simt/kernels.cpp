// The kernels themselves, compiled for the CPU, and how they are launched by name.
#include "cuda_on_cpu.hpp"
//
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <utility>

#include "all.cu"
#include "block.hpp"

#ifndef __SANITIZE_ADDRESS__
extern "C" char __start_simt_shared[], __stop_simt_shared[];
#endif

namespace simt {
namespace {

template <class T>
T value_at(const void* place) {
  T value;
  std::memcpy(&value, place, sizeof(T));
  return value;
}

template <auto kFunction>
struct Caller;

template <class... Parameters, void (*kFunction)(Parameters...)>
struct Caller<kFunction> {
  static void call(void* const* values) { call(values, std::index_sequence_for<Parameters...>{}); }
  template <size_t... kIndex>
  static void call(void* const* values, std::index_sequence<kIndex...>) {
    kFunction(value_at<Parameters>(values[kIndex])...);
  }
  static Kernel kernel(const char* name) { return {name, {sizeof(Parameters)...}, &call}; }
};

Order order_of_threads = Order::forward;

void forget_shared() {
#ifndef __SANITIZE_ADDRESS__
  std::memset(__start_simt_shared, 0xff, size_t(__stop_simt_shared - __start_simt_shared));
#endif
}

void check(const Kernel& kernel, Size grid, Size block, size_t shared) {
  const bool line = block.x == ANOCO_GPU_BLOCK && block.y == 1;
  const bool square = block.x == ANOCO_GPU_TILE && block.y == ANOCO_GPU_TILE;
  const bool some = grid.x > 0 && grid.y > 0 && grid.z == 1 && block.z == 1;
  if ((line || square) && some && shared == 0) return;
  std::fprintf(stderr, "simt: %s cannot run as %ux%ux%u blocks of %ux%ux%u, %zu bytes shared\n",
               kernel.name, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared);
  std::abort();
}

}  // namespace

const std::vector<Kernel>& kernels() {
#define ANOCO_ENTRY(name) Caller<&name>::kernel(#name),
  static const std::vector<Kernel> list{ANOCO_GPU_KERNELS(ANOCO_ENTRY)};
#undef ANOCO_ENTRY
  return list;
}

const Kernel* find(const char* name) {
  for (const Kernel& kernel : kernels())
    if (std::strcmp(kernel.name, name) == 0) return &kernel;
  return nullptr;
}

void run_threads(Order order) { order_of_threads = order; }

void launch(const Kernel& kernel, Size grid, Size block, size_t shared, void* const* values) {
  static std::mutex one_at_a_time;
  const std::lock_guard<std::mutex> lock(one_at_a_time);
  check(kernel, grid, block, shared);
  blockDim = {block.x, block.y, block.z};
  gridDim = {grid.x, grid.y, grid.z};
  for (unsigned y = 0; y < grid.y; ++y)
    for (unsigned x = 0; x < grid.x; ++x) {
      blockIdx = {x, y, 0};
      forget_shared();
      run_block({&kernel, values, block, order_of_threads});
    }
}

}  // namespace simt
