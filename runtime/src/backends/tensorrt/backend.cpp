// Loads a plan from the cache into an engine that contexts share, and makes the requests that run
// it.
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "backends/tensorrt/fingerprint.hpp"
#include "backends/tensorrt/library.hpp"
#include "backends/tensorrt/plan_cache.hpp"
#include "backends/tensorrt/tensorrt.hpp"
#include "failure.hpp"
#include "gpu/memory.hpp"
#include "gpu/stream.hpp"
#include "kernels/kernels.hpp"
#include "status_guard.hpp"

namespace anoco {
namespace {

using nvinfer1::DataType;
using nvinfer1::Dims;

constexpr char kInput[] = "pixels", kOutput[] = "features";

Dims shape_of(std::initializer_list<int64_t> sides) {
  Dims dims{};
  for (const int64_t side : sides) dims.d[dims.nbDims++] = side;
  return dims;
}

bool same(const Dims& a, const Dims& b) {
  if (a.nbDims != b.nbDims) return false;
  for (int32_t k = 0; k < a.nbDims; ++k)
    if (a.d[k] != b.d[k]) return false;
  return true;
}

// ---- The plan ----

struct Model {
  int64_t width, height, patches, dim;
};

// The members are destroyed in the reverse of this order, which is the order that TensorRT
// requires: first the engine, then the runtime, the log and the library.
struct PlanEngine {
  PlanEngine(const anoco_model& given, TensorRt found)
      : library(std::move(found)),
        device(gpu::Device::open(int(given.gpu))),
        model{given.width, given.height, given.patches, given.dim} {}

  TensorRt library;
  gpu::SharedDevice device;
  Model model;
  TensorRtLog log;
  std::unique_ptr<nvinfer1::IRuntime> runtime;
  std::unique_ptr<nvinfer1::ICudaEngine> engine;
  DataType type = DataType::kFLOAT;  // of the features
  std::mutex creating;               // contexts are made one at a time
};

[[noreturn]] void no_plan(const anoco_model& model, const TensorRt& library,
                          const PlanFingerprint& this_device) {
  std::string bundle = model.path;
  bundle = bundle.substr(0, bundle.find_last_of('/'));
  fail(ANOCO_BAD_BUNDLE, "there is no plan of " + bundle + " for TensorRT " + library.version +
                             " on " + this_device.gpu + " (" + this_device.capability +
                             "): run anoco-edge build " + bundle + " --engine tensorrt");
}

// Refuses a file that is not a plan of this backbone although it was filed as one.
void check_plan(const PlanEngine& loaded, const PlanRecord& record) {
  const nvinfer1::ICudaEngine& engine = *loaded.engine;
  const Model& model = loaded.model;
  bool fits = engine.getNbIOTensors() == 2;
  for (int32_t k = 0; fits && k < 2; ++k) {
    const char* name = engine.getIOTensorName(k);
    fits = std::strcmp(name, kInput) == 0 || std::strcmp(name, kOutput) == 0;
  }
  if (fits) {
    const Dims least = engine.getProfileShape(kInput, 0, nvinfer1::OptProfileSelector::kMIN);
    const Dims out = engine.getTensorShape(kOutput);
    const DataType type = engine.getTensorDataType(kOutput);
    fits = same(least, shape_of({1, model.height, model.width, 3})) &&
           engine.getTensorDataType(kInput) == DataType::kUINT8 &&
           (type == DataType::kFLOAT || type == DataType::kHALF) && out.nbDims == 3 &&
           out.d[1] == model.patches && out.d[2] == model.dim;
  }
  if (!fits)
    fail(ANOCO_BAD_BUNDLE, record.path.string() +
                               " is not a plan of this bundle's backbone: build it again with: "
                               "anoco-edge build BUNDLE --force");
}

std::unique_ptr<PlanEngine> open_plan(const anoco_model& model) {
  if (model.device != nullptr)
    fail(ANOCO_INVALID_ARGUMENT, "tensorrt knows no device '" + std::string(model.device) +
                                     "': name the GPU by its number, in options.gpu");
  auto loaded = std::make_unique<PlanEngine>(model, TensorRt(model.library));
  const PlanFingerprint this_device = fingerprint_of(int(model.gpu), loaded->library.version);
  const std::optional<PlanRecord> record =
      find_plan(plans_folder(), model.identity, this_device, loaded->library.full_version);
  if (!record) no_plan(model, loaded->library, this_device);
  const Bytes plan = read_plan(*record);

  const gpu::CurrentDevice current(*loaded->device);
  loaded->runtime.reset(loaded->library.create_runtime(loaded->log));
  if (loaded->runtime == nullptr)
    fail(ANOCO_ENGINE, "TensorRT does not start: " + loaded->log.take(), "run: anoco-edge doctor");
  loaded->engine.reset(loaded->runtime->deserializeCudaEngine(plan.data(), plan.size()));
  if (loaded->engine == nullptr)
    fail(ANOCO_ENGINE, "TensorRT refuses " + record->path.string() + ": " + loaded->log.take(),
         "build it again with: anoco-edge build BUNDLE --force");
  check_plan(*loaded, *record);
  loaded->type = loaded->engine->getTensorDataType(kOutput);
  return loaded;
}

// ---- Requests ----

// The buffers belong to the request. Members are destroyed in reverse order, so the stream is
// waited for first, and the context is destroyed before its memory.
struct PlanRequest {
  explicit PlanRequest(PlanEngine& of)
      : loaded(of),
        count(of.model.patches * of.model.dim),
        features(of.device, count * (of.type == DataType::kHALF ? 2 : 4)) {}

  PlanEngine& loaded;
  int64_t count;  // of numbers
  gpu::DeviceBuffer<uint8_t> features;
  std::unique_ptr<nvinfer1::IExecutionContext> context;
  const void* input = nullptr;  // where the context reads

  // Holds what `run` needs for pixels that come from the host and features that go back to it.
  struct Host {
    Host(const PlanEngine& of, int64_t bytes_out)
        : pixels(of.device, of.model.width * of.model.height * 3),
          staged(of.device, pixels.size()),
          raw(of.device, bytes_out),
          numbers(size_t(of.model.patches * of.model.dim)),
          stream(of.device) {}
    gpu::DeviceBuffer<uint8_t> pixels;
    gpu::PinnedBuffer<uint8_t> staged, raw;
    std::vector<float> numbers;
    gpu::Stream stream;
  };
  std::unique_ptr<Host> host;
};

void must(PlanEngine& loaded, bool done, const char* call) {
  if (!done)
    fail(ANOCO_ENGINE, std::string("TensorRT failed at ") + call + ": " + loaded.log.take(),
         "try again, and report it if it stays");
}

std::unique_ptr<PlanRequest> make_request(PlanEngine& loaded) {
  const gpu::CurrentDevice current(*loaded.device);
  auto running = std::make_unique<PlanRequest>(loaded);
  {
    const std::lock_guard<std::mutex> lock(loaded.creating);
    running->context.reset(loaded.engine->createExecutionContext());
  }
  if (running->context == nullptr)
    fail(ANOCO_ENGINE, "TensorRT cannot create a context: " + loaded.log.take(),
         "free memory of the device, or use fewer contexts");
  const Model& model = loaded.model;
  must(loaded, running->context->setInputShape(kInput, shape_of({1, model.height, model.width, 3})),
       "setInputShape");
  must(loaded, running->context->setTensorAddress(kOutput, running->features.data()),
       "setTensorAddress");
  running->host = std::make_unique<PlanRequest::Host>(loaded, running->features.size());
  return running;
}

// Enqueues the inference and does not wait for it. If the pixels are always in the same place the
// context stays unchanged, so the call can be captured into a graph.
void enqueue(PlanRequest& running, const void* pixels, gpu::CUstream stream) {
  PlanEngine& loaded = running.loaded;
  if (running.input != pixels) {
    must(loaded, running.context->setTensorAddress(kInput, const_cast<void*>(pixels)),
         "setTensorAddress");
    running.input = pixels;
  }
  must(loaded, running.context->enqueueV3(reinterpret_cast<cudaStream_t>(stream)), "enqueueV3");
}

const float* run_on_host(PlanRequest& running, const uint8_t* pixels) {
  const gpu::CurrentDevice current(*running.loaded.device);
  PlanRequest::Host& host = *running.host;
  gpu::StreamGuard guard(host.stream);
  std::memcpy(host.staged.data(), pixels, size_t(host.staged.size()));
  gpu::upload(host.staged, host.pixels, host.staged.size(), host.stream.get());
  enqueue(running, host.pixels.data(), host.stream.get());
  gpu::download(running.features.data(), host.raw, host.raw.size(), host.stream.get());
  host.stream.wait();
  guard.dismiss();
  if (running.loaded.type == DataType::kHALF)
    kernels().widen(reinterpret_cast<const uint16_t*>(host.raw.data()), running.count,
                    host.numbers.data());
  else
    std::memcpy(host.numbers.data(), host.raw.data(), size_t(host.raw.size()));
  return host.numbers.data();
}

// ---- The interface ----

anoco_status open(void*, const anoco_model* model, void** engine, char* error, size_t size) {
  return status_guard(error, size, [&] { *engine = open_plan(*model).release(); });
}

void close(void* engine) {
  std::unique_ptr<PlanEngine> loaded(static_cast<PlanEngine*>(engine));
  const gpu::SharedDevice device = loaded->device;  // must outlive the engine's memory
  gpu::release_on_device(*device, [&] { loaded.reset(); });
}

anoco_status create_request(void* engine, void** request, char* error, size_t size) {
  return status_guard(
      error, size, [&] { *request = make_request(*static_cast<PlanEngine*>(engine)).release(); });
}

void destroy_request(void* request) {
  std::unique_ptr<PlanRequest> running(static_cast<PlanRequest*>(request));
  const gpu::SharedDevice device = running->loaded.device;
  gpu::release_on_device(*device, [&] { running.reset(); });
}

anoco_status run(void* request, const uint8_t* pixels, const float** features, char* error,
                 size_t size) {
  return status_guard(
      error, size, [&] { *features = run_on_host(*static_cast<PlanRequest*>(request), pixels); });
}

int32_t cuda_device(void* engine) { return static_cast<PlanEngine*>(engine)->device->ordinal(); }

anoco_status run_device(void* request, const void* pixels, void* stream, const void** features,
                        uint32_t* type, char* error, size_t size) {
  return status_guard(error, size, [&] {
    PlanRequest& running = *static_cast<PlanRequest*>(request);
    enqueue(running, pixels, static_cast<gpu::CUstream>(stream));
    *features = running.features.data();
    *type = running.loaded.type == DataType::kHALF ? ANOCO_FLOAT16 : ANOCO_FLOAT32;
  });
}

}  // namespace

anoco_backend tensorrt_backend() {
  return {sizeof(anoco_backend), 0,   "tensorrt",  nullptr,   open, close, create_request,
          destroy_request,       run, cuda_device, run_device};
}

}  // namespace anoco
