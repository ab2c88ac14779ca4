// anoco_cuda.hpp - anoco_cuda.h for C++17: scoring on an NVIDIA device.
//
//   anoco::CudaScorer scorer(bank, options);            // anoco_bank_options, copied to the device
//   scorer.score_device(patches, scores);               // features that TensorRT left there
#pragma once

#include "anoco_cuda.h"
#include "anoco_edge.hpp"

namespace anoco {

// Describes a device; `usable` and `why_not` say whether scorers can be made.
inline anoco_cuda_info cuda_info(uint32_t device = 0) {
  anoco_cuda_info found = ANOCO_CUDA_INFO_INIT;
  check(anoco_cuda_describe(device, &found));
  return found;
}

// Describes a picture in the memory of the device that a detector scores on; stride 0: rows without
// gaps.
inline anoco_image device_image(const void* data, int64_t width, int64_t height,
                                uint32_t format = ANOCO_RGB, int64_t stride = 0) {
  anoco_image made = image(data, width, height, format, stride);
  made.memory = ANOCO_DEVICE;
  return made;
}

class CudaScorer {
 public:
  explicit CudaScorer(const anoco_bank_options& bank,
                      const anoco_scorer_options& options = ANOCO_SCORER_OPTIONS_INIT,
                      const anoco_cuda_options& cuda = ANOCO_CUDA_OPTIONS_INIT) {
    anoco_cuda_scorer* made = nullptr;
    check(anoco_cuda_scorer_create(&bank, &options, &cuda, &made));
    handle_.reset(made);
  }

  // Scores patches in the caller's memory; outputs may be null.
  void score(const float* query, int64_t rows, float* energy, int64_t* anchor = nullptr,
             float* similarity = nullptr, int64_t* neighbors = nullptr) {
    check(anoco_cuda_scorer_score(get(), query, ANOCO_FLOAT32, rows, energy, anchor, similarity,
                                  neighbors));
  }

  // Scores patches on the device.
  void score_device(const anoco_device_patches& query, const anoco_patch_scores& out) {
    check(anoco_score_patches_device(get(), &query, &out));
  }

  // Returns the bytes of the device that are used in addition to the bank.
  uint64_t memory() const {
    uint64_t bytes = 0;
    check(anoco_cuda_scorer_memory(get(), &bytes));
    return bytes;
  }

  anoco_cuda_scorer* get() const noexcept { return handle_.get(); }

 private:
  detail::Handle<anoco_cuda_scorer, anoco_cuda_scorer_destroy> handle_;
};

}  // namespace anoco
