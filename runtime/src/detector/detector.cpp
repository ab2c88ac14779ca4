#include "detector/detector.hpp"

#include <algorithm>

#include "detector/selftest.hpp"
#include "failure.hpp"

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
  engine_ = std::make_shared<const Engine>(settings.engine, bundle_->graph().string(),
                                           bundle_->manifest().input, bundle_->graph_identity());
  execution_provider_ = open_execution_provider(
      engine_, {settings.provider, settings.engine.gpu, bundle_->manifest().precision == "fp16",
                bundle_->manifest().input});
  Request request(engine_);
  const SelfTestResult result = run_selftest(*bundle_, request);
  log(ANOCO_LOG_INFO, "self-test passed on " + settings.engine.backend + ": worst cosine " +
                          std::to_string(result.min_cosine));
  if (!product_) log(ANOCO_LOG_WARNING, bundle_->path().string() + " has no products yet");
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
  std::unique_ptr<Workspace> retired, untaken;  // freed after the lock is released
  const std::lock_guard<std::mutex> lock(swapping_);
  retired = std::move(retired_);
  untaken = std::move(next_);
  next_ = std::move(workspace);
}

void Context::take_next() {
  const std::lock_guard<std::mutex> lock(swapping_);
  if (!next_) return;
  retired_ = std::move(current_);  // prepare() has emptied it
  current_ = std::move(next_);
}

void Context::check_result() const {
  if (!has_result_)
    fail(ANOCO_NO_RESULT, "the context's last inspection failed, or there was none",
         "call anoco_inspect first");
}

}  // namespace anoco
