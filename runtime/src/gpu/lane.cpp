#include "gpu/lane.hpp"

#include <algorithm>

namespace anoco::gpu {
namespace {

int64_t window_bytes(const InputContract& window) { return 3 * window.width * window.height; }

int64_t feature_count(const InputContract& window) { return window.patches() * window.dim; }

}  // namespace

EngineLane::EngineLane(SharedDevice device, std::shared_ptr<const Engine> engine,
                       const InputContract& window, const Log& log)
    : device_(std::move(device)),
      window_(window),
      on_device_(engine->cuda_device() >= 0),
      request_(std::move(engine)),
      input_(device_, (window_bytes(window) + 3) / 4 * 4) {
  if (on_device_) {
    const Current current(*device_);
    const Stream stream(device_);
    driver().cuMemsetD32Async(input_.address(), 0, input_.bytes() / 4, stream.get());
    Tidy tidy(stream);
    const DeviceFeatures found = request_.run_device(input_.data(), stream.get());
    stream.wait();
    tidy.done();
    features_ = {operands_of(found.type), address_of(found.address)};
    capture(log);
    return;
  }
  pixels_ = PinnedBuffer<uint8_t>(device_, window_bytes(window));
  here_ = PinnedBuffer<float>(device_, feature_count(window));
  there_ = DeviceBuffer<float>(device_, feature_count(window));
  features_ = {Operands::float32, there_.address()};
}

int64_t EngineLane::bytes(const Engine& engine, const InputContract& window) {
  const int64_t input = window_bytes(window);
  return engine.cuda_device() >= 0 ? input : 2 * input + 8 * feature_count(window);
}

void EngineLane::capture(const Log& log) {
  const Stream stream(device_);
  try {
    graph_ = Graph::capture(device_, stream.get(), [&] {
      const DeviceFeatures found = request_.run_device(input_.data(), stream.get());
      if (address_of(found.address) != features_.address) fail(ANOCO_ENGINE, "its features moved");
    });
  } catch (const Failure& failure) {
    log(ANOCO_LOG_WARNING,
        request_.engine().label() +
            ": not captured into a CUDA graph, so it is enqueued for every picture (" +
            failure.text + ")");
  }
}

void EngineLane::run(const Stream& stream) {
  if (graph_)
    graph_.launch(stream.get());
  else if (on_device_)
    request_.run_device(input_.data(), stream.get());
  else
    run_on_host(stream);
}

void EngineLane::run_on_host(const Stream& stream) {
  download(input_.data(), pixels_, pixels_.size(), stream.get());
  stream.wait();
  std::copy_n(request_.run(pixels_.data()), here_.size(), here_.data());
  upload(here_, there_, here_.size(), stream.get());
}

}  // namespace anoco::gpu
