// Captures the graphs of one owner, and goes on without them where that fails.
#pragma once

#include <string>
#include <utility>

#include "gpu/capture_rule.hpp"
#include "gpu/graph_counts.hpp"
#include "gpu/stream.hpp"

namespace anoco::gpu {

// Work runs without a graph as well, only slower, so a capture that fails costs no picture: it is
// tried again with the next one, and given up after kMostFailures in a row.
class GraphMaker {
 public:
  static constexpr int kMostFailures = 5;

  GraphMaker(SharedDevice device, GraphCounts& counts)
      : device_(std::move(device)), counts_(&counts) {}

  bool gave_up() const { return failures_ == kMostFailures; }

  // Records what `work` enqueues on the stream without running it. The graph is empty if that
  // failed, was postponed, or was given up. The device must be current.
  template <class Work>
  Graph capture(CUstream stream, Work&& work) {
    if (gave_up()) return {};
    const CaptureScope scope;
    if (!scope) {
      ++counts_->postponed;
      return {};
    }
    try {
      Graph made = Graph::capture(device_, stream, work);
      ++counts_->made;
      failures_ = 0;
      return made;
    } catch (const Failure& failure) {
      note(failure.text);
      return {};
    }
  }

 private:
  void note(const std::string& reason) {
    ++counts_->failed;
    counts_->reason = reason;
    if (++failures_ == kMostFailures) counts_->given_up = true;
  }

  SharedDevice device_;
  GraphCounts* counts_;
  int failures_ = 0;  // in a row
};

// Work that is enqueued again and again: as a graph, once it could be captured.
class RepeatedWork {
 public:
  // The first time the work is enqueued and waited for, because kernels are then loaded, which is a
  // change of the device and not allowed during a capture.
  template <class Work>
  void run(GraphMaker& maker, const Stream& stream, Work&& work) {
    if (graph_) return graph_.launch(stream.get());
    enqueue(work);
    if (maker.gave_up()) return;
    stream.wait();
    graph_ = maker.capture(stream.get(), work);
  }

 private:
  template <class Work>
  void enqueue(Work&& work) {
    if (loaded_) return work();
    const DeviceChange change;
    work();
    loaded_ = true;
  }

  Graph graph_;
  bool loaded_ = false;
};

}  // namespace anoco::gpu
