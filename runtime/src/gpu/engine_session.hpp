// The backbone's part of a session on a device: its input and features there, and its CUDA graph.
#pragma once

#include "detector/execution_provider.hpp"
#include "gpu/device_allocator.hpp"
#include "gpu/graph_maker.hpp"
#include "gpu/patches.hpp"

namespace anoco::gpu {

class EngineSession {
 public:
  // Runs the engine once and then captures it into a graph. While there is no graph it is enqueued
  // for every picture. An engine that is not on the device runs on the host, and its features are
  // copied.
  EngineSession(SharedDevice device, std::shared_ptr<const Engine> engine,
                const InputContract& window, const Log& log);
  static int64_t bytes(const Engine& engine, const InputContract& window);

  uint8_t* input() const { return input_.data(); }  // the pixels of one tile
  Patches features() const { return features_; }    // of one tile; their address never changes

  // Enqueues the engine. An engine on the host has run when this returns, and so has all earlier
  // work of the stream.
  void run(const Stream& stream);
  void run_plain(const Stream& stream);  // the same without the graph
  bool captured() const { return bool(graph_); }

  // Of the engine, and of the workspaces that use it.
  GraphCounts& graph_counts() { return graph_counts_; }
  const GraphCounts& graph_counts() const { return graph_counts_; }

 private:
  // The one list of its memory, see buffer_list.hpp.
  template <class Each>
  static void each_buffer(bool on_device, const InputContract& window, Each&& each);
  void capture(CUstream stream);
  void run_on_host(const Stream& stream);

  SharedDevice device_;
  InputContract window_;
  bool on_device_;
  Request request_;
  Patches features_;
  DeviceBuffer<uint8_t> input_;
  // Only for an engine on the host:
  PinnedBuffer<uint8_t> pixels_;
  PinnedBuffer<float> host_features_;
  DeviceBuffer<float> device_features_;
  GraphCounts graph_counts_;
  GraphMaker graph_maker_;
  Graph graph_;
};

}  // namespace anoco::gpu
