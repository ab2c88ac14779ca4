// Uses anoco_cuda.hpp and anoco_cuda.h as a C++ program does: with the shared library, and with the
// simulated driver through the calls that such a program makes itself.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "anoco_cuda.hpp"
#include "simcuda.h"
#include "tests/check.h"

extern "C" {  // CUDA's driver
int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(void**, int);
int cuDevicePrimaryCtxRelease_v2(int);
int cuCtxPushCurrent_v2(void*);
int cuCtxPopCurrent_v2(void**);
int cuMemAlloc_v2(unsigned long long*, size_t);
int cuMemFree_v2(unsigned long long);
int cuMemHostAlloc(void**, size_t, unsigned);
int cuMemFreeHost(void*);
int cuMemcpyHtoD_v2(unsigned long long, const void*, size_t);
int cuMemcpyDtoH_v2(void*, unsigned long long, size_t);
}

namespace {

constexpr int64_t kRefs = 40, kRows = 6, kDim = 8;

std::vector<float> noise(int64_t count, unsigned state) {
  std::vector<float> made(static_cast<size_t>(count));
  for (float& value : made) {
    state = state * 1664525u + 1013904223u;
    value = float(state >> 8) / 8388608.0f - 0.6f;
  }
  return made;
}

const std::vector<float> kBank = noise(kRefs * kDim, 1), kQuery = noise(kRows * kDim, 2);

anoco_bank_options bank() {
  anoco_bank_options options = ANOCO_BANK_OPTIONS_INIT;
  options.features = kBank.data();
  options.rows = kRefs;
  options.dim = kDim;
  return options;
}

struct Scored {
  std::vector<float> energy = std::vector<float>(kRows, -1.0f);
  std::vector<int64_t> anchor = std::vector<int64_t>(kRows, -1);
};

Scored on_cpu() {
  Scored found;
  const anoco_bank_options options = bank();
  anoco::check(anoco_score_patches(&options, nullptr, kQuery.data(), kRows, found.energy.data(),
                                   found.anchor.data(), nullptr, nullptr));
  return found;
}

void compare(const float* energy, const Scored& expected) {
  for (size_t k = 0; k < size_t(kRows); ++k)
    CHECK(std::fabs(energy[k] - expected.energy[k]) <= 1e-4f * expected.energy[k]);
}

void devices_are_described() {
  const anoco_cuda_info found = anoco::cuda_info();
  CHECK(found.usable == 1 && found.simulated == 1 && found.capability == 87);
  CHECK(std::strcmp(found.name, "Simulated device") == 0 && found.why_not[0] == 0);
  const anoco_cuda_info none = anoco::cuda_info(3);
  CHECK(none.usable == 0 && std::strstr(none.why_not, "no CUDA device 3") != nullptr);
  anoco_cuda_info shorter = ANOCO_CUDA_INFO_INIT;
  shorter.struct_size = offsetof(anoco_cuda_info, memory);
  shorter.memory = 7;
  CHECK(anoco_cuda_describe(0, &shorter) == ANOCO_OK && shorter.memory == 7);
  CHECK(anoco_cuda_describe(0, nullptr) == ANOCO_INVALID_ARGUMENT);
}

void patches_here_are_scored() {
  anoco::CudaScorer scorer(bank());
  const Scored expected = on_cpu();
  Scored found;
  scorer.score(kQuery.data(), kRows, found.energy.data(), found.anchor.data());
  compare(found.energy.data(), expected);
  CHECK(found.anchor == expected.anchor);
  simcuda_numbers numbers;
  simcuda_count(&numbers);
  // Of the bank: numbers and their parts, norms and those of the parts.
  const uint64_t of_bank = kBank.size() * (4 + 3 * 2) + kRefs * 2 * 4;
  CHECK(scorer.memory() == numbers.device_bytes - of_bank);
  anoco::CudaScorer moved = std::move(scorer);
  moved.score(kQuery.data(), 0, nullptr);
}

// Outputs on the device, too.
void patches_there_are_scored() {
  void* context = nullptr;
  unsigned long long query = 0, energy = 0, anchor = 0;
  CHECK(cuInit(0) == 0 && cuDevicePrimaryCtxRetain(&context, 0) == 0);
  CHECK(cuCtxPushCurrent_v2(context) == 0);
  CHECK(cuMemAlloc_v2(&query, kQuery.size() * 4) == 0 && cuMemAlloc_v2(&energy, kRows * 4) == 0);
  CHECK(cuMemAlloc_v2(&anchor, kRows * 4) == 0);
  CHECK(cuMemcpyHtoD_v2(query, kQuery.data(), kQuery.size() * 4) == 0);
  {
    anoco::CudaScorer scorer(bank());
    anoco_device_patches patches = ANOCO_DEVICE_PATCHES_INIT;
    patches.features = reinterpret_cast<const void*>(query);
    patches.rows = kRows;
    anoco_patch_scores scores = ANOCO_PATCH_SCORES_INIT;
    scores.memory = ANOCO_DEVICE;
    scores.energy = reinterpret_cast<float*>(energy);
    scores.anchor = reinterpret_cast<int32_t*>(anchor);
    scorer.score_device(patches, scores);
  }
  float found[kRows];
  int32_t rows[kRows];
  CHECK(cuMemcpyDtoH_v2(found, energy, sizeof found) == 0);
  CHECK(cuMemcpyDtoH_v2(rows, anchor, sizeof rows) == 0);
  const Scored expected = on_cpu();
  compare(found, expected);
  for (size_t k = 0; k < size_t(kRows); ++k) CHECK(rows[k] == expected.anchor[k]);
  CHECK(cuMemFree_v2(query) == 0 && cuMemFree_v2(energy) == 0 && cuMemFree_v2(anchor) == 0);
  CHECK(cuCtxPopCurrent_v2(&context) == 0 && cuDevicePrimaryCtxRelease_v2(0) == 0);
}

// Page-locked memory that is mapped: written and read by the host, scored where it is.
void patches_in_shared_memory_are_scored() {
  void *context = nullptr, *memory = nullptr;
  CHECK(cuDevicePrimaryCtxRetain(&context, 0) == 0 && cuCtxPushCurrent_v2(context) == 0);
  CHECK(cuMemHostAlloc(&memory, (kQuery.size() + kRows) * 4, 2) == 0);
  CHECK(cuCtxPopCurrent_v2(&context) == 0);
  auto* query = static_cast<float*>(memory);
  std::copy(kQuery.begin(), kQuery.end(), query);
  const Scored expected = on_cpu();
  {
    anoco::CudaScorer scorer(bank());
    anoco_device_patches patches = ANOCO_DEVICE_PATCHES_INIT;
    patches.features = query;
    patches.rows = kRows;
    anoco_patch_scores scores = ANOCO_PATCH_SCORES_INIT;
    scores.memory = ANOCO_DEVICE;
    scores.energy = query + kQuery.size();
    scorer.score_device(patches, scores);
    compare(scores.energy, expected);
    const int32_t chosen[] = {4};
    patches.chosen = chosen;
    patches.chosen_count = 1;
    scorer.score_device(patches, scores);
    CHECK(scores.energy[0] == scores.energy[4]);
    query[4 * kDim] = std::nanf("");  // found where it is, too
    try {
      scorer.score_device(patches, scores);
      CHECK(false);
    } catch (const anoco::Error& error) {
      CHECK(error.status() == ANOCO_BAD_FEATURES && std::strstr(error.what(), "query patch 4"));
    }
  }
  CHECK(cuCtxPushCurrent_v2(context) == 0 && cuMemFreeHost(memory) == 0);
  CHECK(cuCtxPopCurrent_v2(&context) == 0 && cuDevicePrimaryCtxRelease_v2(0) == 0);
}

template <class Work>
void refused(const char* text, Work&& work) {
  try {
    work();
  } catch (const anoco::Error& error) {
    CHECK(error.status() == ANOCO_INVALID_ARGUMENT);
    CHECK(std::strstr(error.what(), text) != nullptr);
    return;
  }
  CHECK(false);
}

void bad_arguments_are_refused() {
  anoco_cuda_options cuda = ANOCO_CUDA_OPTIONS_INIT;
  cuda.operands = 9;
  refused("type is 9", [&] { anoco::CudaScorer(bank(), ANOCO_SCORER_OPTIONS_INIT, cuda); });
  anoco_scorer_options options = ANOCO_SCORER_OPTIONS_INIT;
  options.lambda = 0;
  refused("lambda is 0", [&] { anoco::CudaScorer(bank(), options); });
  anoco::CudaScorer scorer(bank());
  anoco_device_patches patches = ANOCO_DEVICE_PATCHES_INIT;
  anoco_patch_scores scores = ANOCO_PATCH_SCORES_INIT;
  patches.rows = 1;
  refused("features is null", [&] { scorer.score_device(patches, scores); });
  patches.rows = -1;
  refused("rows is -1", [&] { scorer.score_device(patches, scores); });
  patches.rows = 1;
  float plain[kDim] = {1};
  patches.features = plain;
  refused("features does not lead to memory of a CUDA device",
          [&] { scorer.score_device(patches, scores); });
  patches.rows = 0;
  scores.memory = 5;
  refused("memory is 5", [&] { scorer.score_device(patches, scores); });
  CHECK(anoco_cuda_scorer_score(nullptr, nullptr, ANOCO_FLOAT32, 1, nullptr, nullptr, nullptr,
                                nullptr) == ANOCO_INVALID_ARGUMENT);
  CHECK(anoco_cuda_scorer_memory(scorer.get(), nullptr) == ANOCO_INVALID_ARGUMENT);
  anoco_cuda_scorer_destroy(nullptr);
}

}  // namespace

int main() {
  setenv("ANOCO_CUDA_DRIVER", SIMCUDA_PATH, 1);
  devices_are_described();
  patches_here_are_scored();
  patches_there_are_scored();
  patches_in_shared_memory_are_scored();
  bad_arguments_are_refused();
  simcuda_numbers numbers;
  simcuda_count(&numbers);
  CHECK(numbers.objects == 0);
  return 0;
}
