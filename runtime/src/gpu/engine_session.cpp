#include "gpu/engine_session.hpp"

#include <algorithm>

namespace anoco::gpu {

template <class Each>
void EngineLane::each_buffer(bool on_device, const InputContract& window, Each&& each) {
  const int64_t pixels = 3 * window.width * window.height, features = window.patches() * window.dim;
  each(&EngineLane::input_, (pixels + 3) / 4 * 4);  // whole words, which are set to zero
  if (on_device) return;
  each(&EngineLane::pixels_, pixels);
  each(&EngineLane::here_, features);
  each(&EngineLane::there_, features);
}

EngineLane::EngineLane(SharedDevice device, std::shared_ptr<const Engine> engine,
                       const InputContract& window, const Log& log)
    : device_(std::move(device)),
      window_(window),
      on_device_(engine->cuda_device() >= 0),
      request_(std::move(engine)) {
  each_buffer(on_device_, window, DeviceAllocator{*this, device_});
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
  features_ = {Operands::float32, there_.address()};
}

int64_t EngineLane::bytes(const Engine& engine, const InputContract& window) {
  return count_bytes([&](auto& each) { each_buffer(engine.cuda_device() >= 0, window, each); });
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
