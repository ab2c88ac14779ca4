// Tests the parts of src/gpu that need no device: which code is chosen, how memory is divided, and
// whether the kernels take the arguments that they are given.
#include <cmath>
#include <cstring>

#include "gpu/device.hpp"
#include "gpu/driver.hpp"
#include "gpu/scorer.hpp"
#include "simt.hpp"
#include "tests/check.h"

namespace {

using namespace anoco::gpu;
using anoco::DeviceCode;

constexpr DeviceCode kCodes[] = {
    {"sm_75", 75, false, 12060, nullptr, 0},      {"sm_80", 80, false, 12060, nullptr, 0},
    {"sm_86", 86, false, 12060, nullptr, 0},      {"sm_87", 87, false, 12060, nullptr, 0},
    {"sm_90", 90, false, 12060, nullptr, 0},      {"compute_75", 75, true, 12060, nullptr, 0},
    {"sm_110", 110, false, 13000, nullptr, 0},    {"sm_120", 120, false, 13000, nullptr, 0},
    {"compute_120", 120, true, 13000, nullptr, 0}};

void chosen(int capability, int driver, const char* name) {
  const DeviceCode* code = choose_code({kCodes, std::size(kCodes)}, capability, driver);
  const char* got = code != nullptr ? code->name : "none";
  if (std::strcmp(got, name) != 0) std::fprintf(stderr, "%d: %s\n", capability, got);
  CHECK(std::strcmp(got, name) == 0);
}

void code_is_chosen_by_device_and_driver() {
  chosen(87, 12060, "sm_87");        // Orin, JetPack 6
  chosen(87, 13000, "sm_87");        // Orin, JetPack 7
  chosen(89, 12060, "sm_87");        // Ada runs the nearest of its family
  chosen(80, 12040, "sm_80");        // minor versions of one major are compatible
  chosen(110, 13000, "sm_110");      // Thor
  chosen(110, 12080, "compute_75");  // code of 13 does not load there
  chosen(121, 13000, "sm_120");
  chosen(130, 13000, "compute_120");
  chosen(70, 12060, "none");
  chosen(87, 11080, "none");
  CHECK(choose_code({nullptr, 0}, 87, 13000) == nullptr);
}

void cublas_goes_with_the_driver() {
  CHECK(std::strcmp(cublas_file(12060), "libcublas.so.12") == 0);
  CHECK(std::strcmp(cublas_file(12090), "libcublas.so.12") == 0);
  CHECK(std::strcmp(cublas_file(13000), "libcublas.so.13") == 0);
}

void layout(int64_t refs, int64_t dim, Operands type, int64_t rows, int64_t memory, bool gram) {
  const TileLayout found({refs, dim, type}, rows, memory);
  CHECK(found.gram == gram);
  CHECK(found.most_rows >= 1 && found.most_rows <= rows);
  const bool least = found.most_rows == 1;
  CHECK(found.bytes <= memory || least);
  const int64_t height = found.height(rows), tiles = (rows + height - 1) / height;
  CHECK(height >= 1 && height <= found.most_rows && tiles * height >= rows);
}

void memory_stays_in_its_budget() {
  constexpr int64_t kMegabyte = 1'000'000;
  layout(2304, 1024, Operands::float16, 2304, kDeviceMemory, true);
  layout(9216, 1024, Operands::float16, 2304, kDeviceMemory, false);
  layout(100000, 1024, Operands::float32, 2304, kDeviceMemory, false);
  layout(10000000, 1024, Operands::float32, 2304, kDeviceMemory, false);
  layout(1, 1, Operands::float32, 1, kMegabyte, true);
  for (int64_t refs = 1; refs < 300000; refs = refs * 3 / 2 + 1)
    for (int64_t rows : {1, 17, 576, 2304, 40000})
      for (int64_t memory : {kMegabyte, 48 * kMegabyte, kDeviceMemory}) {
        const TileLayout found({refs, 384, Operands::float16}, rows, memory);
        layout(refs, 384, Operands::float16, rows, memory, found.gram);
      }
}

void no_energy_is_nan() {
  float energy[] = {0.5f, 0, std::nanf(""), 1};
  check_energies(energy, 2);
  try {
    check_energies(energy, 4);
    CHECK(false);
  } catch (const anoco::Failure& failure) {
    CHECK(failure.status == ANOCO_CORRUPT);
    CHECK(failure.text.find("query patch 2 is not a number") != std::string::npos);
  }
}

// What cuLaunchKernel reads through a pointer must be as large as the parameter of the kernel.
void kernels_take_what_they_are_given() {
  anoco::gpu::Kernels all;
  size_t seen = 0;
  all.for_each([&](const auto& kernel) {
    kernel.describe([&](const char* name, const size_t* sizes, size_t count) {
      const simt::Kernel* real = simt::find(name);
      CHECK(real != nullptr && real->parameters.size() == count);
      for (size_t k = 0; k < count; ++k) CHECK(real->parameters[k] == sizes[k]);
      ++seen;
    });
  });
  CHECK(seen == simt::kernels().size());
}

}  // namespace

int main() {
  code_is_chosen_by_device_and_driver();
  cublas_goes_with_the_driver();
  memory_stays_in_its_budget();
  no_energy_is_nan();
  kernels_take_what_they_are_given();
  return 0;
}
