#include "detector/detector.hpp"

#include <algorithm>

#include "detector/selftest.hpp"
#include "failure.hpp"
#include "gpu/device.hpp"

namespace anoco {
namespace {

void check_random(const Bundle& bundle, bool allowed) {
  if (bundle.manifest().random_weights && !allowed)
    fail(ANOCO_BAD_BUNDLE, bundle.path().string() +
                               " was exported with random weights, so its verdicts mean nothing: "
                               "export it with real weights (or set allow_random to test)");
}

}  // namespace

Detector::Detector(std::shared_ptr<const Bundle> bundle, const DetectorSettings& settings)
    : bundle_(std::move(bundle)), settings_(settings) {
  check_random(*bundle_, settings.allow_random);
  // Errors that are found quickly come first, because loading a backbone may take seconds.
  const std::string name = settings.product.empty() ? bundle_->only_product() : settings.product;
  if (!name.empty()) product_ = load(name);
  if (settings.blocking_sync) gpu::use_blocking_sync(int(settings.engine.gpu));
  choose_backend();
  precision_ = plan_precision(settings.cpu_precision, settings_.engine, *bundle_,
                              product_ ? &product_->product() : nullptr);
  if (precision_.name == "bf16" && settings.cpu_precision.empty()) {
    try {
      open_engine(true);
    } catch (const Failure& failure) {  // in FP32 it may pass; if not, that says what is wrong
      precision_ = {"fp32", failure.text};
    }
  }
  if (!execution_provider_) open_engine(precision_.name == "bf16");
  if (product_) warn_of_mismatch(*product_);
  if (!product_) log(ANOCO_LOG_WARNING, bundle_->path().string() + " has no products yet");
}

// "auto" is TensorRT where it can load the bundle's plan. A plan that does not run as it should is
// an error all the same.
void Detector::choose_backend() {
  EngineChoice& engine = settings_.engine;
  if (engine.backend.empty()) {
    engine.backend = "openvino";
    backend_ = {engine.backend, "the default"};
  } else if (engine.backend != "auto") {
    backend_ = {engine.backend, "asked for"};
  } else {
    EngineChoice tensorrt = engine;
    tensorrt.backend = "tensorrt";
    tensorrt.device = tensorrt.library = "";  // they are openvino's
    try {
      engine_ = make_engine(tensorrt);
      engine = tensorrt;
      backend_ = {engine.backend, "it has a plan of the bundle for this device"};
    } catch (const Failure& failure) {
      if (failure.status != ANOCO_NO_BACKEND && failure.status != ANOCO_BAD_BUNDLE) throw;
      engine.backend = "openvino";
      backend_ = {engine.backend, failure.text};
      // Without a plan there is a device that could be used.
      log(failure.status == ANOCO_BAD_BUNDLE ? ANOCO_LOG_WARNING : ANOCO_LOG_INFO,
          "openvino runs the backbone, not tensorrt: " + failure.text);
    }
  }
}

std::shared_ptr<const Engine> Detector::make_engine(const EngineChoice& choice) const {
  return std::make_shared<const Engine>(choice, bundle_->graph().string(),
                                        bundle_->manifest().input, bundle_->graph_identity());
}

void Detector::open_engine(bool bf16) {
  EngineChoice choice = settings_.engine;
  choice.bf16 = bf16;
  auto engine = engine_ ? std::move(engine_) : make_engine(choice);
  Choice placed = choose_provider(*engine, settings_.provider);
  const Manifest& manifest = bundle_->manifest();
  auto provider = open_execution_provider(
      engine,
      {placed.name, settings_.engine.gpu, multiplies_in_half(manifest.precision), manifest.input});
  {
    Request request(engine);
    const SelfTestResult result = run_selftest(*bundle_, request);
    log(ANOCO_LOG_INFO, "self-test passed on " + settings_.engine.backend +
                            (bf16 ? " in BF16" : "") + ": worst cosine " +
                            std::to_string(result.min_cosine));
  }
  provider->check_path(*bundle_,
                       [this](int32_t level, const std::string& text) { log(level, text); });
  engine_ = std::move(engine);
  provider_ = std::move(placed);
  execution_provider_ = std::move(provider);
}

void Detector::warn_of_mismatch(const LoadedProduct& product) const {
  const std::string words = mismatch(product.product(), precision_);
  if (!words.empty()) log(ANOCO_LOG_WARNING, words);
}

std::shared_ptr<const LoadedProduct> Detector::load(const std::string& name) const {
  auto product = std::make_shared<const LoadedProduct>(*bundle_, name, settings_.threshold);
  log(ANOCO_LOG_INFO, "product " + name + ", generation " +
                          std::to_string(product->product().generation) + ": " +
                          std::to_string(product->bank()->rows()) + " patches of " +
                          std::to_string(product->product().references.size()) + " references");
  if (product->threshold() <= 0)
    log(ANOCO_LOG_WARNING, "product " + name + " has no threshold: no part will be judged");
  return product;
}

void Detector::select(const std::string& name) {
  const std::lock_guard<std::mutex> lock(changing_);
  std::shared_ptr<const LoadedProduct> product = load(name);
  std::vector<std::unique_ptr<Workspace>> prepared;
  for (const Context* context : contexts_)
    prepared.push_back(context->session_->prepare(product, context->settings_));
  for (Context* context : contexts_) context->retirement_.expect_one();
  warn_of_mismatch(*product);
  // Nothing below may fail.
  product_ = std::move(product);
  for (size_t k = 0; k < prepared.size(); ++k) contexts_[k]->prepare(std::move(prepared[k]));
}

std::shared_ptr<const LoadedProduct> Detector::product() const {
  const std::lock_guard<std::mutex> lock(changing_);
  return selected();
}

const std::shared_ptr<const LoadedProduct>& Detector::selected() const {
  if (!product_)
    fail(ANOCO_NO_PRODUCT,
         bundle_->path().string() +
             " has no references yet: teach it with anoco_enroll or anoco-edge enroll, then call "
             "anoco_detector_select");
  return product_;
}

void Detector::log(int32_t level, const std::string& text) const {
  if (settings_.log != nullptr) settings_.log(settings_.log_user, level, text.c_str());
}

std::unique_ptr<Workspace> Detector::add(Context& context) {
  const std::lock_guard<std::mutex> lock(changing_);
  auto workspace = context.session_->prepare(selected(), context.settings_);
  contexts_.push_back(&context);
  return workspace;
}

void Detector::remove(Context& context) {
  const std::lock_guard<std::mutex> lock(changing_);
  contexts_.erase(std::find(contexts_.begin(), contexts_.end(), &context));
}

Context::Context(std::shared_ptr<Detector> detector, const ContextSettings& settings)
    : detector_(std::move(detector)), settings_(settings) {
  session_ = detector_->execution_provider().open_session(
      [this](int32_t level, const std::string& text) { detector_->log(level, text); });
  // This comes last: once the detector knows the context, nothing here may fail. If the product
  // changes between the two calls, the new workspace waits in next_.
  current_ = detector_->add(*this);
}

Context::~Context() { detector_->remove(*this); }

void Context::prepare(std::unique_ptr<Workspace> workspace) noexcept {
  std::unique_ptr<Workspace> untaken;  // freed after the lock is released
  const std::lock_guard<std::mutex> lock(swapping_);
  untaken = std::move(next_);
  next_ = std::move(workspace);
}

void Context::take_next() {
  const std::lock_guard<std::mutex> lock(swapping_);
  if (!next_) return;
  retirement_.take(std::move(current_));
  current_ = std::move(next_);
}

void Context::check_result() const {
  if (!has_result_)
    fail(ANOCO_NO_RESULT, "the context's last inspection failed, or there was none",
         "call anoco_inspect first");
}

}  // namespace anoco
