// The C boundary of detectors, contexts and results.
#include <cmath>
#include <memory>
#include <string>

#include "api/boundary.hpp"
#include "bundle/handle.hpp"
#include "detector/handle.hpp"
#include "threads/pool.hpp"

namespace {

using namespace anoco;

std::string text_or(const char* text, const char* otherwise) {
  return text != nullptr ? text : otherwise;
}

DetectorSettings read_detector(const anoco_detector_options* given) {
  const auto options = read_options(given, anoco_detector_options ANOCO_DETECTOR_OPTIONS_INIT);
  if (!(options.threshold >= 0 && std::isfinite(options.threshold)))
    fail(ANOCO_INVALID_ARGUMENT, "threshold is " + std::to_string(options.threshold) +
                                     ": it must be a number above 0, or 0 for the product's own");
  DetectorSettings settings;
  settings.engine = {text_or(options.backend, ""),
                     text_or(options.device, ""),
                     text_or(options.library, ""),
                     options.threads,
                     options.gpu,
                     false};
  settings.provider = text_or(options.scorer, "");
  settings.product = text_or(options.product, "");
  settings.threshold = options.threshold;
  settings.allow_random = options.allow_random != 0;
  settings.cpu_precision = text_or(options.cpu_precision, "auto");
  if (settings.cpu_precision == "auto") settings.cpu_precision.clear();
  settings.log = options.log;
  settings.log_user = options.log_user;
  settings.blocking_sync = options.blocking_sync != 0;
  check_reserved(options.reserved, "the detector options'");
  return settings;
}

ContextSettings read_context(const anoco_context_options* given) {
  constexpr int64_t kMostPixels = 1 << 15;
  const auto options = read_options(given, anoco_context_options ANOCO_CONTEXT_OPTIONS_INIT);
  for (const int64_t side : {options.max_width, options.max_height})
    if (side < 0 || side > kMostPixels)
      fail(ANOCO_INVALID_ARGUMENT, "max_width and max_height are " +
                                       std::to_string(options.max_width) + " and " +
                                       std::to_string(options.max_height) + ": use 0 to 32768");
  ContextSettings settings;
  settings.threads = scoring_threads(options.threads);
  settings.memory_mb = options.memory_mb;
  settings.pin = options.pin != 0;
  settings.max_width = options.max_width;
  settings.max_height = options.max_height;
  return settings;
}

int32_t verdict(const Workspace& found) {
  if (found.product().threshold() <= 0) return ANOCO_UNCALIBRATED;
  return found.region_count() > 0 ? ANOCO_ANOMALOUS : ANOCO_GOOD;
}

anoco_result describe(const Workspace& found) {
  const LoadedProduct& product = found.product();
  const InputContract& input = product.input();
  anoco_result result = ANOCO_RESULT_INIT;
  result.verdict = verdict(found);
  result.score = found.score();
  result.threshold = product.threshold();
  result.ratio = product.threshold() > 0 ? found.score() / product.threshold() : 0;
  result.product = product.product().name.c_str();
  result.generation = product.product().generation;
  result.rows = input.rows;
  result.cols = input.cols;
  result.energy = found.energy();
  result.anchor = found.anchor();
  result.similarity = found.similarity();
  result.counted = found.scored();
  result.map_width = input.width;
  result.map_height = input.height;
  result.map = found.map();
  result.outline = found.outline();
  result.region_count = found.region_count();
  result.peak_row = found.peak() / input.cols;
  result.peak_col = found.peak() % input.cols;
  result.picture_left = found.placement().left;
  result.picture_top = found.placement().top;
  result.picture_width = found.placement().width;
  result.picture_height = found.placement().height;
  result.threshold_kind = int32_t(product.threshold_kind());
  return result;
}

anoco_region describe(const Region& found) {
  anoco_region region = ANOCO_REGION_INIT;
  region.x0 = found.box.x0;
  region.y0 = found.box.y0;
  region.x1 = found.box.x1;
  region.y1 = found.box.y1;
  region.area = found.area;
  region.peak = found.peak;
  region.row = found.row;
  region.col = found.col;
  return region;
}

anoco_evidence find_evidence(const Workspace& found, int64_t row, int64_t col) {
  const InputContract& input = found.product().input();
  if (row < 0 || row >= input.rows || col < 0 || col >= input.cols)
    fail(ANOCO_INVALID_ARGUMENT,
         "patch " + std::to_string(row) + ", " + std::to_string(col) +
             " lies outside the grid of " + std::to_string(input.rows) + " x " +
             std::to_string(input.cols),
         "rows and columns count from 0");
  const int64_t patch = row * input.cols + col;
  if (!found.scored()[patch])
    fail(ANOCO_INVALID_ARGUMENT,
         "patch " + std::to_string(row) + ", " + std::to_string(col) + " was not inspected",
         "ask for a patch whose result.counted is 1: others lie outside the region of interest, "
         "under the mask or in fill");
  const Evidence source = found.product().evidence(found.anchor()[patch]);
  const Box query = found.placement().to_picture(patch_box(input, row, col));
  anoco_evidence evidence = ANOCO_EVIDENCE_INIT;
  evidence.reference = source.reference->name.c_str();
  evidence.file = source.file->c_str();
  evidence.row = source.row;
  evidence.col = source.col;
  evidence.x0 = source.box.x0;
  evidence.y0 = source.box.y0;
  evidence.x1 = source.box.x1;
  evidence.y1 = source.box.y1;
  evidence.query_x0 = query.x0;
  evidence.query_y0 = query.y0;
  evidence.query_x1 = query.x1;
  evidence.query_y1 = query.y1;
  evidence.similarity = found.similarity()[patch];
  return evidence;
}

}  // namespace

extern "C" {

anoco_status anoco_detector_open(const anoco_bundle* bundle, const anoco_detector_options* options,
                                 anoco_detector** out) {
  return guarded([&] {
    need(bundle, "bundle");
    need(out, "out");
    *out = new anoco_detector{std::make_shared<Detector>(bundle->bundle, read_detector(options))};
  });
}

void anoco_detector_destroy(anoco_detector* detector) { delete detector; }

anoco_status anoco_detector_select(anoco_detector* detector, const char* product) {
  return guarded([&] {
    need(detector, "detector");
    need(product, "product");
    detector->detector->select(product);
  });
}

anoco_status anoco_detector_describe(const anoco_detector* detector, anoco_detector_info* out) {
  return guarded([&] {
    need(detector, "detector");
    check_out(out);
    const PrecisionChoice& precision = detector->detector->precision();
    anoco_detector_info info = ANOCO_DETECTOR_INFO_INIT;
    if (!precision.name.empty()) {
      info.cpu_precision = precision.name.c_str();
      info.cpu_precision_reason = precision.reason.c_str();
    }
    info.backend = detector->detector->backend().name.c_str();
    info.backend_reason = detector->detector->backend().reason.c_str();
    info.scorer = detector->detector->provider().name.c_str();
    info.scorer_reason = detector->detector->provider().reason.c_str();
    write_out(out, info);
  });
}

anoco_status anoco_query_memory(const anoco_detector* detector,
                                const anoco_context_options* options, uint64_t* bytes) {
  return guarded([&] {
    need(detector, "detector");
    need(bytes, "bytes");
    const ContextSettings settings = read_context(options);
    const Detector& from = *detector->detector;
    *bytes = uint64_t(from.execution_provider().bytes(*from.product(), settings));
  });
}

anoco_status anoco_context_create(anoco_detector* detector, const anoco_context_options* options,
                                  anoco_context** out) {
  return guarded([&] {
    need(detector, "detector");
    need(out, "out");
    *out = new anoco_context{{detector->detector, read_context(options)}};
  });
}

void anoco_context_destroy(anoco_context* context) { delete context; }

anoco_status anoco_inspect(anoco_context* context, const anoco_image* image, anoco_result* out) {
  return guarded([&] {
    need(context, "context");
    if (out != nullptr) check_out(out);
    context->context.inspect(checked_image(image), [&](const Workspace& found) {
      if (out != nullptr) write_out(out, describe(found));
    });
  });
}

anoco_status anoco_result_region(anoco_context* context, int64_t number, anoco_region* out) {
  return guarded([&] {
    need(context, "context");
    check_out(out);
    context->context.with_result([&](const Workspace& found) {
      if (number < 0 || number >= found.region_count())
        fail(ANOCO_INVALID_ARGUMENT, "there is no region " + std::to_string(number),
             "the result has " + std::to_string(found.region_count()) + ", counted from 0");
      write_out(out, describe(found.region(number)));
    });
  });
}

anoco_status anoco_result_evidence(anoco_context* context, int64_t row, int64_t col,
                                   anoco_evidence* out) {
  return guarded([&] {
    need(context, "context");
    check_out(out);
    context->context.with_result(
        [&](const Workspace& found) { write_out(out, find_evidence(found, row, col)); });
  });
}

anoco_status anoco_result_map(anoco_context* context, float* out) {
  return guarded([&] {
    need(context, "context");
    need(out, "out");
    context->context.with_result([&](Workspace& found) { found.enlarge_map(out); });
  });
}

anoco_status anoco_result_timings(anoco_context* context, anoco_timings* out) {
  return guarded([&] {
    need(context, "context");
    check_out(out);
    context->context.with_result([&](const Workspace& found) {
      const StageTimes& times = found.times();
      anoco_timings timings = ANOCO_TIMINGS_INIT;
      timings.preprocess = times.preprocess;
      timings.backbone = times.backbone;
      timings.scoring = times.scoring;
      timings.map = times.map;
      timings.total = times.total();
      write_out(out, timings);
    });
  });
}

}  // extern "C"
