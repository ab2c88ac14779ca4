#include "engine/engine.hpp"

#include <optional>
#include <utility>

#include "failure.hpp"
#include "gpu/capture_rule.hpp"
#include "status_guard.hpp"

namespace anoco {
namespace {

// Holds the error text of a backend. It lies on the stack, because running must not allocate.
class BackendError {
 public:
  char* text() { return text_; }
  size_t size() const { return sizeof text_; }

  // Throws a Failure unless the backend succeeded and gave a pointer; `what` names what it had to
  // give.
  void check(anoco_status status, const void* given, const std::string& label, const char* what) {
    if (status == ANOCO_OK && given != nullptr) return;
    if (status == ANOCO_OK)
      fail(ANOCO_ENGINE, label + ": the backend gave no " + what,
           "it returned ANOCO_OK and left the pointer null: correct it, or use another backend");
    const bool known = status > ANOCO_OK && status <= ANOCO_NO_RESULT;
    text_[sizeof text_ - 1] = 0;  // in case the backend forgot
    const std::string words = text_[0] != 0 ? text_
                              : known       ? anoco_status_text(status)
                                            : "status " + std::to_string(status);
    fail(known ? status : ANOCO_ENGINE, label + ": " + words);
  }

 private:
  char text_[512] = "";
};

// Making, destroying and the first run of an engine on a CUDA device synchronize that device, see
// gpu/capture_rule.hpp.
class EngineChange {
 public:
  explicit EngineChange(const anoco_backend& backend, bool first = true) {
    if (first && backend.cuda_device != nullptr) change_.emplace();
  }

 private:
  std::optional<gpu::DeviceChange> change_;
};

// A callback that frees something has no status to return, so what it throws is dropped: passing it
// on would end the program.
template <class Work>
void release(Work&& work) noexcept {
  status_guard(work, [](const char*) {});
}

const char* or_null(const std::string& text) { return text.empty() ? nullptr : text.c_str(); }

}  // namespace

Engine::Engine(const EngineChoice& choice, const std::string& graph, const InputContract& input,
               const std::string& identity)
    : backend_(find_backend(choice.backend)),
      label_(choice.device.empty() ? choice.backend : choice.backend + " on " + choice.device),
      bf16_(choice.bf16) {
  anoco_model model{};
  model.struct_size = sizeof model;
  model.threads = choice.threads;
  model.path = graph.c_str();
  model.width = input.width;
  model.height = input.height;
  model.patches = input.patches();
  model.dim = input.dim;
  model.device = or_null(choice.device);
  model.library = or_null(choice.library);
  model.gpu = choice.gpu;
  model.identity = identity.c_str();
  model.cpu_precision = choice.bf16 ? "bf16" : nullptr;

  BackendError error;
  const EngineChange change(backend_);
  const anoco_status status =
      backend_.open(backend_.user, &model, &handle_, error.text(), error.size());
  error.check(status, handle_, label_, "engine");
}

Engine::~Engine() {
  const EngineChange change(backend_);
  release([&] { backend_.close(handle_); });
}

int Engine::cuda_device() const {
  return backend_.cuda_device != nullptr ? backend_.cuda_device(handle_) : -1;
}

Request::Request(std::shared_ptr<const Engine> engine) : engine_(std::move(engine)) {
  BackendError error;
  const EngineChange change(engine_->backend());
  const anoco_status status =
      engine_->backend().create_request(engine_->handle(), &handle_, error.text(), error.size());
  error.check(status, handle_, engine_->label(), "request");
}

Request::~Request() {
  const EngineChange change(engine_->backend());
  release([&] { engine_->backend().destroy_request(handle_); });
}

const float* Request::run(const uint8_t* pixels) {
  BackendError error;
  const float* features = nullptr;
  const EngineChange change(engine_->backend(), !ran_);
  const anoco_status status =
      engine_->backend().run(handle_, pixels, &features, error.text(), error.size());
  ran_ = ran_ || status == ANOCO_OK;
  error.check(status, features, engine_->label(), "features");
  return features;
}

DeviceFeatures Request::run_device(const void* pixels, void* stream) {
  BackendError error;
  DeviceFeatures found;
  const EngineChange change(engine_->backend(), !ran_);
  const anoco_status status = engine_->backend().run_device(
      handle_, pixels, stream, &found.address, &found.type, error.text(), error.size());
  ran_ = ran_ || status == ANOCO_OK;
  error.check(status, found.address, engine_->label(), "features");
  if (found.type != ANOCO_FLOAT32 && found.type != ANOCO_FLOAT16)
    fail(ANOCO_ENGINE, engine_->label() + ": features of type " + std::to_string(found.type),
         "a backend gives ANOCO_FLOAT32 or ANOCO_FLOAT16: correct it, or use another");
  return found;
}

}  // namespace anoco
