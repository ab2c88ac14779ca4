// The C boundary of the scorer on an NVIDIA device.
#include <climits>
#include <memory>
#include <string>

#include "anoco_cuda.h"
#include "api/boundary.hpp"
#include "api/scorer_options.hpp"
#include "gpu/patch_scorer.hpp"

struct anoco_cuda_scorer {
  anoco::gpu::PatchScorer scorer;
};

namespace {

using namespace anoco;

template <size_t size>
void copy_text(const std::string& text, char (&out)[size]) {
  std::strncpy(out, text.c_str(), size - 1);
}

std::string describe_code(const DeviceCode* code) {
  if (code == nullptr) return "any";
  return std::string(code->name) + " by CUDA " + std::to_string(code->cuda_version / 1000) + "." +
         std::to_string(code->cuda_version % 1000 / 10);
}

int cublas_version() {
  int parts[3] = {0, 0, 0};
  for (int part = 0; part < 3; ++part) gpu::cublas().cublasGetProperty(part, &parts[part]);
  return 10000 * parts[0] + 100 * parts[1] + parts[2];
}

// Fills in what is known, in the order in which things can be missing.
void find_out(uint32_t device, anoco_cuda_info& info) {
  info.built = device_codes().second > 0 ? 1 : 0;
  info.driver_version = gpu::driver().version;
  info.simulated = gpu::driver().simulated ? 1 : 0;
  gpu::driver().cuDeviceGetCount(&info.device_count);
  const gpu::DeviceInfo found = gpu::describe_device(int(device));
  info.capability = found.capability;
  info.memory = found.memory;
  copy_text(found.name, info.name);
  copy_text(describe_code(gpu::choose_code(found.capability)), info.code);
  info.cublas_version = cublas_version();
  info.usable = 1;
}

void check_sizes(const anoco_bank_options& bank, int64_t rows) {
  if (bank.rows > INT_MAX || bank.dim > INT_MAX || rows > INT_MAX)
    fail(ANOCO_INVALID_ARGUMENT, "a CUDA device takes up to 2147483647 patches",
         "thin the bank, or score on the CPU");
}

anoco_cuda_options read_cuda(const anoco_cuda_options* given) {
  const auto options = read_options(given, anoco_cuda_options ANOCO_CUDA_OPTIONS_INIT);
  check_reserved(options.reserved, "the CUDA options'");
  if (options.device > INT_MAX)
    fail(ANOCO_INVALID_ARGUMENT, "device is " + std::to_string(options.device),
         "give the number of a CUDA device, counted from 0");
  if (options.max_rows < 0)
    fail(ANOCO_INVALID_ARGUMENT, "max_rows is " + std::to_string(options.max_rows),
         "give 0, or the most rows that you will score at once");
  return options;
}

anoco_patch_scores read_scores(const anoco_patch_scores* given) {
  need(given, "out");
  const auto out = read_options(given, anoco_patch_scores ANOCO_PATCH_SCORES_INIT);
  if (out.memory > ANOCO_DEVICE)
    fail(ANOCO_INVALID_ARGUMENT,
         "memory is " + std::to_string(out.memory) + ": use ANOCO_HOST or ANOCO_DEVICE");
  return out;
}

void check_rows(int64_t rows) {
  if (rows < 0 || rows > INT_MAX)
    fail(ANOCO_INVALID_ARGUMENT, "rows is " + std::to_string(rows), "give 0 to 2147483647");
}

anoco_device_patches read_patches(const anoco_device_patches* given) {
  need(given, "query");
  const auto query = read_options(given, anoco_device_patches ANOCO_DEVICE_PATCHES_INIT);
  check_rows(query.rows);
  if (query.chosen != nullptr) check_rows(query.chosen_count);
  if (query.rows > 0) need(query.features, "features");
  return query;
}

}  // namespace

extern "C" {

anoco_status anoco_cuda_describe(uint32_t device, anoco_cuda_info* out) {
  return guarded([&] {
    check_out(out);
    anoco_cuda_info info = ANOCO_CUDA_INFO_INIT;
    try {
      find_out(device, info);
    } catch (const Failure& failure) {
      copy_text(failure.text, info.why_not);
    }
    write_out(out, info);
  });
}

anoco_status anoco_cuda_scorer_create(const anoco_bank_options* bank,
                                      const anoco_scorer_options* options,
                                      const anoco_cuda_options* cuda, anoco_cuda_scorer** out) {
  return guarded([&] {
    need(out, "out");
    const anoco_bank_options features = read_bank(bank);
    const anoco_cuda_options wanted = read_cuda(cuda);
    check_sizes(features, wanted.max_rows);
    const gpu::Operands operands =
        gpu::operands_of(wanted.operands != 0 ? wanted.operands : uint32_t{ANOCO_FLOAT32});
    const Settings settings = read_settings(options, gpu::kDeviceMemory);
    auto loaded = std::make_shared<const gpu::DeviceBank>(gpu::Device::open(int(wanted.device)),
                                                          features, operands);
    *out = new anoco_cuda_scorer{{std::move(loaded), settings, wanted.max_rows}};
  });
}

void anoco_cuda_scorer_destroy(anoco_cuda_scorer* scorer) { delete scorer; }

anoco_status anoco_cuda_scorer_memory(anoco_cuda_scorer* scorer, uint64_t* bytes) {
  return guarded([&] {
    need(scorer, "scorer");
    need(bytes, "bytes");
    *bytes = scorer->scorer.device_bytes();
  });
}

anoco_status anoco_cuda_scorer_score(anoco_cuda_scorer* scorer, const void* query, uint32_t type,
                                     int64_t rows, float* energy, int64_t* anchor,
                                     float* similarity, int64_t* neighbors) {
  return guarded([&] {
    need(scorer, "scorer");
    check_rows(rows);
    if (rows > 0) need(query, "query");
    scorer->scorer.score(query, gpu::operands_of(type), rows,
                         {energy, anchor, similarity, neighbors});
  });
}

anoco_status anoco_score_patches_device(anoco_cuda_scorer* scorer,
                                        const anoco_device_patches* query,
                                        const anoco_patch_scores* out) {
  return guarded([&] {
    need(scorer, "scorer");
    scorer->scorer.score_device(read_patches(query), read_scores(out));
  });
}

}  // extern "C"
