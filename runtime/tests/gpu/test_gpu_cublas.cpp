// Finding cuBLAS, with the simulated driver. argv[1] names the case, because what was found is kept
// as long as the process lives.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "anoco_cuda.h"
#include "gpu/cublas.hpp"
#include "tests/check.h"

namespace {

namespace fs = std::filesystem;

anoco_cuda_info describe() {
  anoco_cuda_info info = ANOCO_CUDA_INFO_INIT;
  CHECK(anoco_cuda_describe(0, &info) == ANOCO_OK);
  return info;
}

anoco_status make_scorer(uint32_t products = ANOCO_PRODUCTS_AUTO) {
  const float features[] = {1, 2, 3, 1};
  anoco_bank_options bank = ANOCO_BANK_OPTIONS_INIT;
  bank.features = features;
  bank.rows = bank.dim = 2;
  anoco_cuda_options options = ANOCO_CUDA_OPTIONS_INIT;
  options.max_rows = 1;
  options.products = products;
  anoco_cuda_scorer* scorer = nullptr;
  const anoco_status status = anoco_cuda_scorer_create(&bank, nullptr, &options, &scorer);
  anoco_cuda_scorer_destroy(scorer);
  return status;
}

bool says(const char* text, const char* wanted) {
  if (std::string(text).find(wanted) != std::string::npos) return true;
  std::fprintf(stderr, "%s\n", text);
  return false;
}

void use(const std::string& libraries) { setenv("ANOCO_CUBLAS_LIBRARY", libraries.c_str(), 1); }

// The first cannot make a handle, so the second is used, from then on.
void passed_over() {
  use("/nowhere/libcublas.so.12:" FAKE_CUBLAS ":" SIMCUDA_PATH);
  CHECK(says(describe().cublas_file, FAKE_CUBLAS) && describe().cublas_version == 990000);
  CHECK(make_scorer() == ANOCO_OK);
  CHECK(says(describe().cublas_file, SIMCUDA_PATH) && describe().cublas_version == 120603);
}

void missing() {
  use("/nowhere/libcublas.so.12:" SIMCUDA_FOLDER);
  const anoco_cuda_info info = describe();
  CHECK(info.usable == 1 && info.cublas_version == 0 && info.cublas_file[0] == 0);
  CHECK(make_scorer() == ANOCO_OK && make_scorer(ANOCO_PRODUCTS_OWN) == ANOCO_OK);
  CHECK(make_scorer(3) == ANOCO_INVALID_ARGUMENT);
  CHECK(make_scorer(ANOCO_PRODUCTS_CUBLAS) == ANOCO_NO_BACKEND);
  for (const char* part :
       {"cuBLAS cannot be loaded", "libcublas.so.12 is needed", "pip install nvidia-cublas",
        "/nowhere/libcublas.so.12",  // all that was tried
        "looked into " SIMCUDA_FOLDER})
    CHECK(says(anoco_last_error(), part));
  use(SIMCUDA_PATH);  // it is looked for again
  CHECK(make_scorer(ANOCO_PRODUCTS_CUBLAS) == ANOCO_OK && describe().cublas_version == 120603);
}

// What is measured on a device is recorded, and without cuBLAS there is but one way.
void measured() {
  const fs::path root = fs::temp_directory_path() / ("cache-" + std::to_string(getpid()));
  setenv("XDG_CACHE_HOME", root.c_str(), 1);
  const float features[] = {1, 2, 3, 1, 2, 2};
  anoco_bank_options bank = ANOCO_BANK_OPTIONS_INIT;
  bank.features = features;
  bank.rows = 3;
  bank.dim = 2;
  anoco_cuda_options options = ANOCO_CUDA_OPTIONS_INIT;
  options.operands = ANOCO_FLOAT16;
  anoco_product_times times = ANOCO_PRODUCT_TIMES_INIT;
  CHECK(anoco_cuda_measure_products(&bank, nullptr, &options, &times) == ANOCO_INVALID_ARGUMENT);
  options.max_rows = 2;
  use("/nowhere");
  CHECK(anoco_cuda_measure_products(&bank, nullptr, &options, &times) == ANOCO_OK);
  CHECK(times.cublas_ms == 0 && times.own_ms > 0 && times.faster == ANOCO_PRODUCTS_OWN);
  CHECK(!fs::is_empty(root / "anoco-edge" / "products"));
  use(SIMCUDA_PATH);
  CHECK(anoco_cuda_measure_products(&bank, nullptr, &options, &times) == ANOCO_OK);
  CHECK(times.cublas_ms > 0 && times.own_ms > 0);
  CHECK(make_scorer() == ANOCO_OK);
  fs::remove_all(root);
}

void unusable() {
  const fs::path copy = fs::temp_directory_path() / ("cublas-" + std::to_string(getpid()) + ".so");
  fs::copy_file(FAKE_CUBLAS, copy);
  use(FAKE_CUBLAS ":" + copy.string());
  CHECK(make_scorer() == ANOCO_NO_BACKEND);
  CHECK(says(anoco_last_error(), "no cuBLAS works with the driver and the device"));
  CHECK(says(anoco_last_error(), FAKE_CUBLAS ": CUBLAS_STATUS_NOT_INITIALIZED"));
  CHECK(says(anoco_last_error(), copy.string().c_str()));
  fs::remove(copy);
}

void toolkits() {
  const fs::path root = fs::temp_directory_path() / ("toolkits-" + std::to_string(getpid()));
  for (const char* folder : {"cuda-12.6/targets/aarch64-linux/lib", "cuda-12.6/lib64",
                             "cuda-13.0/lib64", "cuda-9/lib64", "other/lib64"}) {
    fs::create_directories(root / folder);
    if (std::string(folder) != "cuda-9/lib64")
      std::ofstream(root / folder / "libcublas.so.12") << "x";
  }
  const auto found = anoco::gpu::toolkit_folders(root.string());
  CHECK(found.size() == 3 && found[0] == (root / "cuda-13.0/lib64").string());
  CHECK(found[1] == (root / "cuda-12.6/lib64").string());
  CHECK(found[2] == (root / "cuda-12.6/targets/aarch64-linux/lib").string());
  fs::remove_all(root);
  const char* folders[] = {"/somewhere", nullptr};
  CHECK(anoco_cuda_add_folders(folders, 1) == ANOCO_OK);
  CHECK(anoco_cuda_add_folders(folders, 2) == ANOCO_INVALID_ARGUMENT);
  CHECK(anoco_cuda_add_folders(nullptr, 1) == ANOCO_INVALID_ARGUMENT);
  CHECK(anoco_cuda_add_folders(nullptr, -1) == ANOCO_INVALID_ARGUMENT);
}

}  // namespace

int main(int count, char** arguments) {
  CHECK(count == 2);
  setenv("ANOCO_CUDA_DRIVER", SIMCUDA_PATH, 1);
  const std::string wanted = arguments[1];
  if (wanted == "passed_over") passed_over();
  if (wanted == "missing") missing();
  if (wanted == "unusable") unusable();
  if (wanted == "measured") measured();
  if (wanted == "toolkits") toolkits();
  return 0;
}
