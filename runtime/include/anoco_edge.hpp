// anoco_edge.hpp - the C interface for C++17: move-only owners, errors as exceptions.
//
//   anoco::Bundle bundle("hazelnut.anoco");
//   anoco::Detector detector(bundle);
//   anoco::Context context(detector);  // one for each thread
//   const anoco::Result result = context.inspect(anoco::image(pixels, width, height));
//   if (result.anomalous()) stop_the_line();
//
// Everything here runs in the caller's code; the library itself never throws.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "anoco_edge.h"

namespace anoco {

// The exception of a failed call; what() says what is wrong with which value.
class Error : public std::runtime_error {
 public:
  Error(anoco_status status, const std::string& text) : std::runtime_error(text), status_(status) {}
  anoco_status status() const noexcept { return status_; }

 private:
  anoco_status status_;
};

inline void check(anoco_status status) {
  if (status != ANOCO_OK) throw Error(status, anoco_last_error());
}

// Describes a picture in memory that somebody else owns; stride 0: rows without gaps.
inline anoco_image image(const void* data, int64_t width, int64_t height,
                         uint32_t format = ANOCO_RGB, int64_t stride = 0) {
  anoco_image made = ANOCO_IMAGE_INIT;
  made.format = format;
  made.data = data;
  made.width = width;
  made.height = height;
  made.stride = stride;
  return made;
}

namespace detail {

template <auto destroy>
struct Destroy {
  template <class T>
  void operator()(T* handle) const noexcept {
    destroy(handle);
  }
};

template <class T, auto destroy>
using Handle = std::unique_ptr<T, Destroy<destroy>>;

}  // namespace detail

class Bundle {
 public:
  explicit Bundle(const std::string& path) {
    anoco_bundle* made = nullptr;
    check(anoco_bundle_open(path.c_str(), &made));
    handle_.reset(made);
  }

  std::vector<std::string> products() const {
    std::vector<std::string> names;
    for (int64_t k = 0; k < anoco_bundle_product_count(get()); ++k)
      names.emplace_back(anoco_bundle_product(get(), k));
    return names;
  }

  anoco_bundle_info info() const {
    anoco_bundle_info found = ANOCO_BUNDLE_INFO_INIT;
    check(anoco_bundle_describe(get(), &found));
    return found;
  }

  const anoco_bundle* get() const noexcept { return handle_.get(); }

 private:
  detail::Handle<anoco_bundle, anoco_bundle_destroy> handle_;
};

class Detector {
 public:
  explicit Detector(const Bundle& bundle,
                    const anoco_detector_options& options = ANOCO_DETECTOR_OPTIONS_INIT) {
    anoco_detector* made = nullptr;
    check(anoco_detector_open(bundle.get(), &options, &made));
    handle_.reset(made);
  }

  // Changes the product. It may be called in any thread, at any time.
  void select(const std::string& product) { check(anoco_detector_select(get(), product.c_str())); }

  // Returns what runs; the texts live as long as the detector.
  anoco_detector_info info() const {
    anoco_detector_info found = ANOCO_DETECTOR_INFO_INIT;
    check(anoco_detector_describe(get(), &found));
    return found;
  }

  // Returns the bytes that a context allocates.
  uint64_t context_memory(const anoco_context_options& options = ANOCO_CONTEXT_OPTIONS_INIT) const {
    uint64_t bytes = 0;
    check(anoco_query_memory(get(), &options, &bytes));
    return bytes;
  }

  // Teaches good parts; call select() with the product to use what was learnt.
  anoco_enrolled enroll(const std::vector<anoco_image>& pictures,
                        const anoco_enroll_options& options = ANOCO_ENROLL_OPTIONS_INIT) {
    std::vector<const anoco_image*> pointers;
    for (const anoco_image& picture : pictures) pointers.push_back(&picture);
    anoco_enrolled done = ANOCO_ENROLLED_INIT;
    check(anoco_enroll(get(), pointers.data(), int64_t(pointers.size()), &options, &done));
    return done;
  }

  anoco_detector* get() const noexcept { return handle_.get(); }

 private:
  detail::Handle<anoco_detector, anoco_detector_destroy> handle_;
};

// The result of a context; its pointers are valid until the context inspects again.
class Result : public anoco_result {
 public:
  explicit Result(const anoco_result& found) : anoco_result(found) {}
  bool good() const noexcept { return verdict == ANOCO_GOOD; }
  bool anomalous() const noexcept { return verdict == ANOCO_ANOMALOUS; }
};

class Context {
 public:
  explicit Context(const Detector& detector,
                   const anoco_context_options& options = ANOCO_CONTEXT_OPTIONS_INIT) {
    anoco_context* made = nullptr;
    check(anoco_context_create(detector.get(), &options, &made));
    handle_.reset(made);
  }

  Result inspect(const anoco_image& picture) {
    anoco_result found = ANOCO_RESULT_INIT;
    check(anoco_inspect(get(), &picture, &found));
    return Result(found);
  }

  // These belong to the last inspection:

  std::vector<anoco_region> regions(const Result& result) const {
    std::vector<anoco_region> found(size_t(result.region_count), ANOCO_REGION_INIT);
    for (size_t k = 0; k < found.size(); ++k)
      check(anoco_result_region(get(), int64_t(k), &found[k]));
    return found;
  }

  anoco_evidence evidence(int64_t row, int64_t col) const {
    anoco_evidence found = ANOCO_EVIDENCE_INIT;
    check(anoco_result_evidence(get(), row, col, &found));
    return found;
  }

  // Returns width x height floats at the size of the picture that was inspected.
  void map(float* out) const { check(anoco_result_map(get(), out)); }

  anoco_timings timings() const {
    anoco_timings found = ANOCO_TIMINGS_INIT;
    check(anoco_result_timings(get(), &found));
    return found;
  }

  anoco_context* get() const noexcept { return handle_.get(); }

 private:
  detail::Handle<anoco_context, anoco_context_destroy> handle_;
};

}  // namespace anoco
