// Backends of the caller: what can be registered, how they are run, and how they fail.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <stdexcept>
#include <thread>
#include <vector>

#include "engine/engine.hpp"
#include "failure.hpp"
#include "status_guard.hpp"
#include "tests/check.h"

extern "C" anoco_status register_c_backend(void);

namespace {

std::atomic<int> allocations{0};

}  // namespace

void* operator new(size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace {

using anoco::Engine;
using anoco::EngineChoice;
using anoco::Failure;
using anoco::Request;

enum class Step { none, open, create_request, run };

// A backend whose steps fail on request, and which counts what it has handed out.
struct ScriptedBackend {
  Step fails = Step::none;
  anoco_status status = ANOCO_OK;  // of the step that fails; with ANOCO_OK it hands out nothing
  std::string text;
  bool forgets_the_zero = false;
  bool throws_when_freed = false;
  anoco_model model{};  // as given to open
  std::string path, device, library;
  int engines = 0, requests = 0;
};

struct ScriptedRequest {
  ScriptedBackend* scripted;
  std::vector<float> features;
};

anoco_status act(const ScriptedBackend& scripted, char* error, size_t size) {
  CHECK(size >= 256);
  if (scripted.forgets_the_zero) std::memset(error, 'x', size);
  if (!scripted.text.empty()) std::memcpy(error, scripted.text.c_str(), scripted.text.size() + 1);
  return scripted.status;
}

anoco_status scripted_open(void* user, const anoco_model* model, void** engine, char* error,
                           size_t size) {
  ScriptedBackend* scripted = static_cast<ScriptedBackend*>(user);
  scripted->model = *model;
  scripted->path = model->path;
  scripted->device = model->device == nullptr ? "NULL" : model->device;
  scripted->library = model->library == nullptr ? "NULL" : model->library;
  if (scripted->fails == Step::open) return act(*scripted, error, size);
  ++scripted->engines;
  *engine = scripted;
  return ANOCO_OK;
}

void scripted_close(void* engine) {
  ScriptedBackend* scripted = static_cast<ScriptedBackend*>(engine);
  CHECK(scripted->requests == 0);  // requests are destroyed first
  --scripted->engines;
  if (scripted->throws_when_freed) throw 42;
}

anoco_status scripted_create_request(void* engine, void** request, char* error, size_t size) {
  ScriptedBackend* scripted = static_cast<ScriptedBackend*>(engine);
  if (scripted->fails == Step::create_request) return act(*scripted, error, size);
  ++scripted->requests;
  *request = new ScriptedRequest{
      scripted, std::vector<float>(size_t(scripted->model.patches * scripted->model.dim))};
  return ANOCO_OK;
}

void scripted_destroy_request(void* request) {
  ScriptedBackend* const scripted = static_cast<ScriptedRequest*>(request)->scripted;
  --scripted->requests;
  delete static_cast<ScriptedRequest*>(request);
  if (scripted->throws_when_freed) throw 42;
}

anoco_status scripted_run(void* made, const uint8_t* pixels, const float** features, char* error,
                          size_t size) {
  ScriptedRequest* request = static_cast<ScriptedRequest*>(made);
  if (request->scripted->fails == Step::run) return act(*request->scripted, error, size);
  for (size_t k = 0; k < request->features.size(); ++k)
    request->features[k] = float(pixels[k]) + 0.5f;
  *features = request->features.data();
  return ANOCO_OK;
}

anoco_backend scripted_backend(const char* name, ScriptedBackend* scripted) {
  return {sizeof(anoco_backend),
          0,
          name,
          scripted,
          scripted_open,
          scripted_close,
          scripted_create_request,
          scripted_destroy_request,
          scripted_run,
          nullptr,
          nullptr};
}

// A name can be registered only once, so one backend is used by all tests.
ScriptedBackend scripted;

anoco::InputContract small_input() {
  anoco::InputContract input;
  input.width = 8;
  input.height = 4;
  input.rows = 2;
  input.cols = 4;
  input.dim = 1;
  return input;
}

EngineChoice choose(const char* backend, const char* device = "", const char* library = "") {
  EngineChoice choice;
  choice.backend = backend;
  choice.device = device;
  choice.library = library;
  return choice;
}

std::shared_ptr<const Engine> open_scripted(const char* device = "") {
  return std::make_shared<const Engine>(choose("scripted", device), "graph.onnx", small_input());
}

template <class Work>
void fails(anoco_status status, const std::string& text, Work&& work) {
  try {
    work();
  } catch (const Failure& failure) {
    if (failure.status != status || failure.text.find(text) == std::string::npos)
      std::fprintf(stderr, "%d: %s\n", int(failure.status), failure.text.c_str());
    CHECK(failure.status == status);
    CHECK(failure.text.find(text) != std::string::npos);
    return;
  }
  CHECK(false);  // it did not fail
}

void refused(const anoco_backend* backend, const char* text) {
  CHECK(anoco_register_backend(backend) == ANOCO_INVALID_ARGUMENT);
  CHECK(std::strstr(anoco_last_error(), text) != nullptr);
}

void what_cannot_be_registered() {
  refused(nullptr, "backend is null");
  const anoco_backend good = scripted_backend("broken", &scripted);
  anoco_backend bad = good;
  bad.struct_size = 2;
  refused(&bad, "struct_size is 2");
  bad.struct_size = sizeof bad + 8;  // of a later header, with functions this library cannot call
  refused(&bad, "struct_size is");
  bad.struct_size = offsetof(anoco_backend, run);
  refused(&bad, "'run' is null");
  bad = good;
  bad.name = nullptr;
  refused(&bad, "no name");
  bad.name = "";
  refused(&bad, "no name");
  bad = good;
  bad.open = nullptr;
  refused(&bad, "backend 'broken': its function 'open' is null");
  bad = good;
  bad.close = nullptr;
  refused(&bad, "'close' is null");
  bad = good;
  bad.create_request = nullptr;
  refused(&bad, "'create_request' is null");
  bad = good;
  bad.destroy_request = nullptr;
  refused(&bad, "'destroy_request' is null");
  bad = good;
  bad.cuda_device = [](void*) { return int32_t{0}; };
  refused(&bad, "cuda_device and run_device come together");
  bad = scripted_backend("openvino", &scripted);
  refused(&bad, "there is a backend 'openvino' already");
  fails(ANOCO_NO_BACKEND, "no backend 'broken': use one of openvino,",
        [] { anoco::find_backend("broken"); });
}

void a_name_is_taken_once_and_copied() {
  char name[] = "scripted";
  const anoco_backend backend = scripted_backend(name, &scripted);
  CHECK(anoco_register_backend(&backend) == ANOCO_OK);
  std::memset(name, '?', sizeof name - 1);
  CHECK(std::strcmp(anoco::find_backend("scripted").name, "scripted") == 0);
  const anoco_backend again = scripted_backend("scripted", &scripted);
  refused(&again, "there is a backend 'scripted' already");
}

void it_is_told_what_to_run() {
  EngineChoice choice = choose("scripted", "LAMP", "/lib/lamp.so");
  choice.threads = 3;
  choice.bf16 = true;
  const Engine engine(choice, "bundle/backbone.onnx", small_input());
  const anoco_model& model = scripted.model;
  CHECK(model.struct_size == sizeof(anoco_model) && model.threads == 3);
  CHECK(model.width == 8 && model.height == 4 && model.patches == 8 && model.dim == 1);
  CHECK(std::strcmp(model.cpu_precision, "bf16") == 0 && engine.bf16());
  CHECK(scripted.path == "bundle/backbone.onnx");
  CHECK(scripted.device == "LAMP" && scripted.library == "/lib/lamp.so");
  open_scripted();
  CHECK(model.cpu_precision == nullptr);
  CHECK(scripted.device == "NULL" && scripted.library == "NULL");
}

void requests_run_side_by_side_and_take_no_memory() {
  auto engine = open_scripted();
  Request one(engine), other(engine);
  engine.reset();  // requests keep it
  const uint8_t dark[96] = {1, 2, 3}, bright[96] = {200, 201};
  const int before = allocations;
  const float *first = one.run(dark), *second = other.run(bright);
  CHECK(first[0] == 1.5f && first[2] == 3.5f && first[7] == 0.5f);
  CHECK(second[0] == 200.5f && second[1] == 201.5f);
  CHECK(allocations == before && before > 0);
  CHECK(scripted.engines == 1 && scripted.requests == 2);
}

void once_through(const char* device) {
  const uint8_t pixels[96] = {};
  Request(open_scripted(device)).run(pixels);
}

void every_step_can_fail() {
  for (const Step step : {Step::open, Step::create_request, Step::run}) {
    scripted.fails = step;
    scripted.status = ANOCO_NO_BACKEND;
    scripted.text = "the lamp is off";
    fails(ANOCO_NO_BACKEND, "scripted on LAMP: the lamp is off", [] { once_through("LAMP"); });
    fails(ANOCO_NO_BACKEND, "scripted: the lamp is off", [] { once_through(""); });

    scripted.status = 4711;  // is not a status
    fails(ANOCO_ENGINE, "the lamp is off", [] { once_through(""); });
    scripted.text = "";
    fails(ANOCO_ENGINE, "scripted: status 4711", [] { once_through(""); });
    scripted.status = -1;
    fails(ANOCO_ENGINE, "scripted: status -1", [] { once_through(""); });
    scripted.status = ANOCO_OUT_OF_MEMORY;
    fails(ANOCO_OUT_OF_MEMORY, "scripted: there is not enough memory", [] { once_through(""); });

    scripted.forgets_the_zero = true;
    fails(ANOCO_OUT_OF_MEMORY, "scripted: xxxx", [] { once_through(""); });
    scripted.forgets_the_zero = false;

    scripted.status = ANOCO_OK;
    const char* what = step == Step::open             ? "gave no engine"
                       : step == Step::create_request ? "gave no request"
                                                      : "gave no features";
    fails(ANOCO_ENGINE, what, [] { once_through(""); });
    CHECK(scripted.engines == 0 && scripted.requests == 0);
  }
  scripted.fails = Step::none;
  once_through("LAMP");  // it still works afterwards
  CHECK(scripted.engines == 0 && scripted.requests == 0);
}

// The callbacks that free something have no status: what they throw must not end the program.
void freeing_may_throw() {
  scripted.throws_when_freed = true;
  once_through("");
  scripted.throws_when_freed = false;
  CHECK(scripted.engines == 0 && scripted.requests == 0);
}

template <class Work>
void guard_reports(anoco_status status, const char* text, Work&& work) {
  char error[256] = "";
  CHECK(anoco::status_guard(error, sizeof error, work) == status);
  CHECK(std::strncmp(error, text, sizeof error - 1) == 0);
}

// The guard of the built-in backends lets no exception out.
void the_guard_stops_every_exception() {
  guard_reports(ANOCO_OK, "", [] {});
  guard_reports(ANOCO_BAD_BUNDLE, "the graph is missing",
                [] { anoco::fail(ANOCO_BAD_BUNDLE, "the graph is missing"); });
  guard_reports(ANOCO_OUT_OF_MEMORY, "there is not enough memory", [] { throw std::bad_alloc(); });
  guard_reports(ANOCO_INTERNAL, "out of range", [] { throw std::out_of_range("out of range"); });
  guard_reports(ANOCO_INTERNAL, anoco::kUnknownException, [] { throw 42; });
}

void threads_may_register() {
  static const char* const names[] = {"a", "b", "c", "d"};
  std::atomic<int> taken{0};
  std::vector<std::thread> threads;
  for (int k = 0; k < 4; ++k)
    threads.emplace_back([&] {
      for (const char* name : names) {
        const anoco_backend backend = scripted_backend(name, &scripted);
        if (anoco_register_backend(&backend) == ANOCO_OK) ++taken;
        CHECK(anoco::find_backend(name).user == &scripted);
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(taken == 4);
}

void a_backend_in_c() {
  CHECK(register_c_backend() == ANOCO_OK);
  anoco::InputContract input = small_input();
  Request request(std::make_shared<const Engine>(choose("means in C"), "graph.onnx", input));
  uint8_t pixels[96];
  for (int k = 0; k < 96; ++k) pixels[k] = uint8_t(k / 12);
  CHECK(request.run(pixels)[0] == 0 && request.run(pixels)[7] == 7);
  input.dim = 2;
  fails(ANOCO_BAD_BUNDLE, "means in C: one number a patch, not 2",
        [&] { Engine(choose("means in C"), "graph.onnx", input); });
}

// This holds whether or not OpenVINO was there when the library was built.
void openvino_has_a_name() {
  fails(ANOCO_NO_BACKEND, "openvino on CPU: ", [] {
    Engine(choose("openvino", "CPU", "/nowhere/libopenvino_c.so"), "graph.onnx", small_input());
  });
}

}  // namespace

int main() {
  what_cannot_be_registered();
  a_name_is_taken_once_and_copied();
  it_is_told_what_to_run();
  requests_run_side_by_side_and_take_no_memory();
  CHECK(scripted.engines == 0 && scripted.requests == 0);
  every_step_can_fail();
  freeing_may_throw();
  the_guard_stops_every_exception();
  threads_may_register();
  a_backend_in_c();
  openvino_has_a_name();
}
