// Tests the parts of src/gpu that need no device: which code is chosen, how memory is divided,
// what is recorded of both ways to compute products, and whether the kernels take the arguments
// that they are given.
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "gpu/cublas.hpp"
#include "gpu/device.hpp"
#include "gpu/product_record.hpp"
#include "gpu/scorer.hpp"
#include "simt.hpp"
#include "tests/check.h"

namespace {

using namespace anoco::gpu;
using anoco::DeviceCode;

constexpr DeviceCode kCodes[] = {
    {"sm_75", 75, false, 12060, nullptr, 0},       {"sm_80", 80, false, 12060, nullptr, 0},
    {"sm_86", 86, false, 12060, nullptr, 0},       {"sm_87", 87, false, 12060, nullptr, 0},
    {"sm_90", 90, false, 12060, nullptr, 0},       {"compute_75", 75, true, 12060, nullptr, 0},
    {"sm_110", 110, false, 13000, nullptr, 0},     {"sm_120", 120, false, 13000, nullptr, 0},
    {"compute_120", 120, true, 13000, nullptr, 0}, {"compute_121", 121, true, 13020, nullptr, 0}};

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
  chosen(130, 13020, "compute_121");  // PTX of 13.2 needs a driver of 13.2
  chosen(110, 12040, "none");         // PTX of 12.6 does not load there, either
  chosen(70, 12060, "none");
  chosen(87, 11080, "none");
  CHECK(choose_code({nullptr, 0}, 87, 13000) == nullptr);
}

void cublas_goes_with_the_driver() {
  using Names = std::vector<std::string>;
  const std::string twelve = "libcublas.so.12", thirteen = "libcublas.so.13";
  CHECK((cublas_names(11080) == Names{twelve}));
  CHECK((cublas_names(12060) == Names{twelve}));  // JetPack 6
  CHECK((cublas_names(12090) == Names{twelve}));
  CHECK((cublas_names(13000) == Names{thirteen, twelve}));
  CHECK((cublas_names(14020) == Names{"libcublas.so.14", thirteen, twelve}));
}

void layout(int64_t refs, int64_t dim, Factors factors, int64_t rows, int64_t memory, bool gram,
            ProductPath path = ProductPath::cublas) {
  const TileLayout found({refs, dim, factors, path}, rows, memory);
  CHECK(found.gram == gram);
  CHECK(found.most_rows >= 1 && found.most_rows <= rows);
  CHECK(found.dense_rows >= 1 && found.dense_rows <= found.most_rows);
  if (keeps_products(path, factors)) CHECK(found.dense_rows == found.most_rows);
  const bool least = found.most_rows == 1;
  CHECK(found.bytes <= memory || least);
  const int64_t height = found.height(rows), tiles = (rows + height - 1) / height;
  CHECK(height >= 1 && height <= found.most_rows && tiles * height >= rows);
  CHECK(height == rows || height < 128 || height % 128 == 0);  // whole blocks of a product
}

void memory_stays_in_its_budget() {
  constexpr int64_t kMegabyte = 1'000'000, kSmall = 256 * kMegabyte, kLarge = 512 * kMegabyte;
  layout(2304, 1024, Factors::float16, 2304, kSmall, true);
  layout(9216, 1024, Factors::float16, 2304, kSmall, false);
  layout(9216, 1024, Factors::float16, 2304, kLarge, true);
  layout(100000, 1024, Factors::parts, 2304, kSmall, false);
  layout(10000000, 1024, Factors::plain_float32, 2304, kSmall, false);
  layout(1, 1, Factors::parts, 1, kMegabyte, true);
  for (int64_t refs = 1; refs < 300000; refs = refs * 3 / 2 + 1)
    for (int64_t rows : {1, 17, 576, 2304, 40000})
      for (int64_t memory : {kMegabyte, 48 * kMegabyte, kSmall, kLarge})
        for (const ProductPath path : {ProductPath::cublas, ProductPath::own}) {
          const TileLayout found({refs, 384, Factors::float16, path}, rows, memory);
          layout(refs, 384, Factors::float16, rows, memory, found.gram, path);
        }
  // Where products are not kept, all rows are one tile, and memory limits the dense ones.
  const TileLayout large({100000, 1024, Factors::float16, ProductPath::own}, 2304, kLarge);
  CHECK(large.most_rows == 2304 && large.dense_rows > 1000 && large.dense_rows < 1300);
  const TileLayout small({9216, 1024, Factors::float16, ProductPath::own}, 2304, kLarge);
  CHECK(small.most_rows == 2304 && small.dense_rows == 2304);
}

void the_faster_path_is_recorded() {
  namespace fs = std::filesystem;
  const fs::path root = fs::temp_directory_path() / ("products-" + std::to_string(getpid()));
  const fs::path file = root / "anoco-edge" / "device.json";
  const auto path = [&](Factors factors, int64_t dim, int64_t refs) {
    return recorded_path(file, factors, dim, refs);
  };
  const auto half = Factors::float16;
  CHECK(!path(half, 1024, 2304));
  record_products(file, {half, 1024, 2304, 2304}, {2.0, 1.0});
  record_products(file, {half, 1024, 9216, 2304}, {3.0, 4.0});
  CHECK(path(half, 1024, 2304) == ProductPath::own && path(half, 1024, 1152) == ProductPath::own);
  CHECK(path(half, 1024, 4000) == ProductPath::own);  // nearer than the other
  CHECK(path(half, 1024, 5000) == ProductPath::cublas);
  CHECK(!path(half, 1024, 1000) && !path(half, 1024, 20000));  // too far from both
  CHECK(!path(half, 384, 2304) && !path(Factors::parts, 1024, 2304));
  record_products(file, {half, 1024, 2304, 2304}, {1.0, 2.0});
  CHECK(path(half, 1024, 2304) == ProductPath::cublas);
  CHECK((ProductTimes{0, 5}.faster() == ProductPath::own));  // there was no cuBLAS
  std::ofstream(file) << "{}";
  CHECK(!path(half, 1024, 9216));
  record_products(file, {half, 1024, 9216, 2304}, {4.0, 3.0});
  CHECK(path(half, 1024, 9216) == ProductPath::own);
  fs::remove_all(root);
}

void cublas_gets_the_workspace_that_it_recommends() {
  constexpr int64_t kMegabyte = 1 << 20;
  const auto workspace = [](int capability, int64_t memory) {
    const BankShape bank{2304, 1024, Factors::float16, ProductPath::cublas, capability};
    return TileLayout(bank, 2304, memory).workspace;
  };
  CHECK(workspace(87, 512 * kMegabyte) == 4 * kMegabyte);
  CHECK(workspace(89, 512 * kMegabyte) == 4 * kMegabyte);
  CHECK(workspace(90, 512 * kMegabyte) == 32 * kMegabyte);   // Hopper
  CHECK(workspace(110, 512 * kMegabyte) == 32 * kMegabyte);  // Thor
  CHECK(workspace(120, 512 * kMegabyte) == 12 * kMegabyte);
  CHECK(workspace(90, 64 * kMegabyte) == 8 * kMegabyte);  // an eighth of the budget
  const BankShape own{2304, 1024, Factors::float16, ProductPath::own, 90};
  CHECK(TileLayout(own, 2304, 512 * kMegabyte).workspace == 0);
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
  the_faster_path_is_recorded();
  cublas_gets_the_workspace_that_it_recommends();
  no_energy_is_nan();
  kernels_take_what_they_are_given();
  return 0;
}
