// Owning wrappers of the C interface for tests that also use the library's internals, whose class
// names anoco_edge.hpp uses as well.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "anoco_edge.h"

namespace owners {

struct Error : std::runtime_error {
  Error(anoco_status given, const char* text) : std::runtime_error(text), status(given) {}
  anoco_status status;
};

inline void check(anoco_status status) {
  if (status != ANOCO_OK) throw Error(status, anoco_last_error());
}

template <class T, void (*destroy)(T*)>
struct Destroy {
  void operator()(T* handle) const { destroy(handle); }
};
template <class T, void (*destroy)(T*)>
using Owner = std::unique_ptr<T, Destroy<T, destroy>>;

using Bundle = Owner<anoco_bundle, anoco_bundle_destroy>;
using Detector = Owner<anoco_detector, anoco_detector_destroy>;
using Context = Owner<anoco_context, anoco_context_destroy>;

inline Bundle open_bundle(const char* path) {
  anoco_bundle* made = nullptr;
  check(anoco_bundle_open(path, &made));
  return Bundle(made);
}

inline std::vector<std::string> products(const Bundle& bundle) {
  std::vector<std::string> names;
  for (int64_t k = 0; k < anoco_bundle_product_count(bundle.get()); ++k)
    names.emplace_back(anoco_bundle_product(bundle.get(), k));
  return names;
}

inline Detector open_detector(const Bundle& bundle, const anoco_detector_options& options) {
  anoco_detector* made = nullptr;
  check(anoco_detector_open(bundle.get(), &options, &made));
  return Detector(made);
}

inline Context make_context(const Detector& detector) {
  anoco_context* made = nullptr;
  check(anoco_context_create(detector.get(), nullptr, &made));
  return Context(made);
}

inline anoco_result inspect(const Context& context, const anoco_image& image) {
  anoco_result found = ANOCO_RESULT_INIT;
  check(anoco_inspect(context.get(), &image, &found));
  return found;
}

inline anoco_image image(const void* data, int64_t width, int64_t height, uint32_t format) {
  anoco_image made = ANOCO_IMAGE_INIT;
  made.format = format;
  made.data = data;
  made.width = width;
  made.height = height;
  return made;
}

}  // namespace owners
