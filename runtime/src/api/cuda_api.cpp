// The C boundary of the scorer on an NVIDIA device.
#include <climits>
#include <memory>
#include <string>
#include <vector>

#include "anoco_cuda.h"
#include "api/boundary.hpp"
#include "api/scorer_options.hpp"
#include "detector/handle.hpp"
#include "gpu/capture_rule.hpp"
#include "gpu/cublas.hpp"
#include "gpu/patch_scorer.hpp"
#include "gpu/product_trial.hpp"

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

int version_of(const gpu::Cublas& blas) {
  int parts[3] = {0, 0, 0};
  for (int part = 0; part < 3; ++part) blas.cublasGetProperty(part, &parts[part]);
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
  info.usable = 1;
  if (!gpu::has_cublas()) return;
  const gpu::Cublas& blas = gpu::cublas();
  copy_text(blas.file, info.cublas_file);
  info.cublas_version = version_of(blas);
}

void check_sizes(const anoco_bank_options& bank, int64_t rows) {
  if (bank.rows > INT_MAX || bank.dim > INT_MAX || rows > INT_MAX)
    fail(ANOCO_INVALID_ARGUMENT, "a CUDA device takes up to 2147483647 patches",
         "thin the bank, or score on the CPU");
}

anoco_cuda_options read_cuda(const anoco_cuda_options* given) {
  const auto options = read_options(given, anoco_cuda_options ANOCO_CUDA_OPTIONS_INIT);
  if (options.device > INT_MAX)
    fail(ANOCO_INVALID_ARGUMENT, "device is " + std::to_string(options.device),
         "give the number of a CUDA device, counted from 0");
  if (options.max_rows < 0)
    fail(ANOCO_INVALID_ARGUMENT, "max_rows is " + std::to_string(options.max_rows),
         "give 0, or the most rows that you will score at once");
  return options;
}

gpu::Factors factors_of(const anoco_cuda_options& wanted) {
  return gpu::factors_of(
      gpu::operands_of(wanted.operands != 0 ? wanted.operands : uint32_t{ANOCO_FLOAT32}));
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

anoco_graph_info describe_graphs(const gpu::GraphCounts& counts) {
  anoco_graph_info info = ANOCO_GRAPH_INFO_INIT;
  info.given_up = counts.given_up ? 1 : 0;
  info.made = counts.made;
  info.failed = counts.failed;
  info.postponed = counts.postponed;
  copy_text(counts.reason, info.reason);
  return info;
}

void check_kind(uint32_t kind) {
  if (kind != ANOCO_CUDA_CHANGE && kind != ANOCO_CUDA_CAPTURE)
    fail(ANOCO_INVALID_ARGUMENT,
         "kind is " + std::to_string(kind) + ": use ANOCO_CUDA_CHANGE or ANOCO_CUDA_CAPTURE");
}

// The kinds that this thread holds through anoco_cuda_lock, as the sum of their numbers.
thread_local uint32_t locked = 0;

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

anoco_status anoco_cuda_add_folders(const char* const* folders, int64_t count) {
  return guarded([&] {
    if (count < 0)
      fail(ANOCO_INVALID_ARGUMENT, "count is " + std::to_string(count), "give 0 or more");
    if (count > 0) need(folders, "folders");
    std::vector<std::string> given;
    for (int64_t k = 0; k < count; ++k) {
      need(folders[k], "a folder");
      given.emplace_back(folders[k]);
    }
    gpu::add_cublas_folders(given);
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
    const gpu::Factors factors = factors_of(wanted);
    const auto device = gpu::Device::open(int(wanted.device));
    const Settings settings = read_settings(options, gpu::default_memory(*device));
    const gpu::ProductPath path =
        gpu::choose_path(wanted.products, device->ordinal(), factors, features.dim, features.rows);
    auto loaded = std::make_shared<const gpu::DeviceBank>(device, features, factors, path);
    *out = new anoco_cuda_scorer{{std::move(loaded), settings, wanted.max_rows}};
  });
}

anoco_status anoco_cuda_measure_products(const anoco_bank_options* bank,
                                         const anoco_scorer_options* options,
                                         const anoco_cuda_options* cuda, anoco_product_times* out) {
  return guarded([&] {
    check_out(out);
    const anoco_bank_options features = read_bank(bank);
    const anoco_cuda_options wanted = read_cuda(cuda);
    check_sizes(features, wanted.max_rows);
    if (wanted.max_rows == 0)
      fail(ANOCO_INVALID_ARGUMENT, "max_rows is 0", "give the number of patches of a picture");
    const auto device = gpu::Device::open(int(wanted.device));
    const gpu::Factors factors = factors_of(wanted);
    const Settings settings = read_settings(options, gpu::default_memory(*device));
    const gpu::CurrentDevice current(*device);
    const gpu::ProductTimes times =
        gpu::measure_products(device, features, settings, factors, wanted.max_rows);
    gpu::record_products(gpu::product_record_file(device->ordinal()),
                         {factors, features.dim, features.rows, wanted.max_rows}, times);
    anoco_product_times found = ANOCO_PRODUCT_TIMES_INIT;
    found.faster = times.faster() == gpu::ProductPath::cublas ? uint32_t{ANOCO_PRODUCTS_CUBLAS}
                                                              : uint32_t{ANOCO_PRODUCTS_OWN};
    found.cublas_ms = times.cublas;
    found.own_ms = times.own;
    write_out(out, found);
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

anoco_status anoco_context_graphs(anoco_context* context, anoco_graph_info* out) {
  return guarded([&] {
    need(context, "context");
    check_out(out);
    write_out(out, describe_graphs(context->context.graph_counts()));
  });
}

anoco_status anoco_cuda_scorer_graphs(anoco_cuda_scorer* scorer, anoco_graph_info* out) {
  return guarded([&] {
    need(scorer, "scorer");
    check_out(out);
    write_out(out, describe_graphs(scorer->scorer.graphs()));
  });
}

anoco_status anoco_cuda_lock(uint32_t kind) {
  return guarded([&] {
    check_kind(kind);
    if (locked != 0)
      fail(ANOCO_INVALID_ARGUMENT, "this thread holds a lock already",
           "call anoco_cuda_unlock first: locks are not nested");
    if (kind == ANOCO_CUDA_CHANGE)
      gpu::begin_change();
    else if (!gpu::begin_capture(std::chrono::milliseconds(0)))
      fail(ANOCO_INVALID_ARGUMENT, "a call of this library is under way in this thread",
           "capture outside of callbacks that make or destroy something");
    locked = kind;
  });
}

anoco_status anoco_cuda_unlock(uint32_t kind) {
  return guarded([&] {
    check_kind(kind);
    if (locked != kind)
      fail(ANOCO_INVALID_ARGUMENT, "this thread does not hold that lock",
           "call anoco_cuda_lock in the same thread first");
    locked = 0;
    if (kind == ANOCO_CUDA_CHANGE)
      gpu::end_change();
    else
      gpu::end_capture();
  });
}

}  // extern "C"
