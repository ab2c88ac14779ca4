#include "gpu/engine_session.hpp"

#include <algorithm>

namespace anoco::gpu {

template <class Each>
void EngineSession::each_buffer(bool on_device, const InputContract& window, Each&& each) {
  const int64_t pixels = 3 * window.width * window.height, features = window.patches() * window.dim;
  each(&EngineSession::input_, (pixels + 3) / 4 * 4);  // whole words, which are set to zero
  if (on_device) return;
  each(&EngineSession::pixels_, pixels);
  each(&EngineSession::host_features_, features);
  each(&EngineSession::device_features_, features);
}

EngineSession::EngineSession(SharedDevice device, std::shared_ptr<const Engine> engine,
                             const InputContract& window, const Log& log)
    : device_(std::move(device)),
      window_(window),
      on_device_(engine->cuda_device() >= 0),
      request_(std::move(engine)),
      graph_maker_(device_, graph_counts_) {
  each_buffer(on_device_, window, DeviceAllocator{*this, device_});
  if (on_device_) {
    const CurrentDevice current(*device_);
    const Stream stream(device_);
    driver().cuMemsetD32Async(input_.address(), 0, input_.bytes() / 4, stream.get());
    StreamGuard guard(stream);
    const DeviceFeatures found = request_.run_device(input_.data(), stream.get());
    stream.wait();
    guard.dismiss();
    features_ = {operands_of(found.type), address_of(found.address)};
    capture(stream.get());
    if (graph_counts_.failed > 0)
      log(ANOCO_LOG_WARNING,
          request_.engine().label() +
              ": not captured into a CUDA graph, so it is enqueued for every picture (" +
              graph_counts_.reason + "); that is tried again with the next pictures");
    return;
  }
  features_ = {Operands::float32, device_features_.address()};
}

int64_t EngineSession::bytes(const Engine& engine, const InputContract& window) {
  return count_bytes([&](auto& each) { each_buffer(engine.cuda_device() >= 0, window, each); });
}

void EngineSession::capture(CUstream stream) {
  graph_ = graph_maker_.capture(stream, [&] {
    const DeviceFeatures found = request_.run_device(input_.data(), stream);
    if (address_of(found.address) != features_.address) fail(ANOCO_ENGINE, "its features moved");
  });
}

void EngineSession::run(const Stream& stream) {
  if (on_device_ && !graph_) capture(stream.get());
  if (graph_)
    graph_.launch(stream.get());
  else
    run_plain(stream);
}

void EngineSession::run_plain(const Stream& stream) {
  if (on_device_)
    request_.run_device(input_.data(), stream.get());
  else
    run_on_host(stream);
}

void EngineSession::run_on_host(const Stream& stream) {
  download(input_.data(), pixels_, pixels_.size(), stream.get());
  stream.wait();
  std::copy_n(request_.run(pixels_.data()), host_features_.size(), host_features_.data());
  upload(host_features_, device_features_, host_features_.size(), stream.get());
}

}  // namespace anoco::gpu
