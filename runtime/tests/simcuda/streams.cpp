// The calls of CUDA's driver, for streams, events, launches and graphs.
#include <cstring>

#include "interpreted.hpp"
#include "world.hpp"

using namespace simcuda;

namespace {

World& world() { return World::get(); }

// Arguments that lead into an allocation are pointers; those that lead into a freed one are
// mistakes. How much of it a kernel touches is known when it runs.
std::vector<Use> find_uses(const std::string& name, const std::vector<size_t>& sizes,
                           void* const* values) {
  std::vector<Use> found;
  for (size_t k = 0; k < sizes.size(); ++k) {
    uint64_t value = 0;
    if (sizes[k] != sizeof value) continue;
    std::memcpy(&value, values[k], sizeof value);
    if (world().was_freed(value)) misuse(name + ": a pointer to memory that was freed");
    const Allocation* there = world().find(value);
    if (there == nullptr) continue;
    if (there->host) misuse(name + ": a pointer to the host");
    found.push_back({there->number, value, true});
  }
  return found;
}

}  // namespace

extern "C" {

CUresult cuStreamCreate(CUstream* stream, unsigned) {
  const Entry entry("cuStreamCreate");
  if (entry.code() != kSuccess) return entry.code();
  if (const CUresult code = entry.refuse_in_capture()) return code;
  *stream = reinterpret_cast<CUstream>(world().make<Stream>(Kind::stream, entry.context()));
  return kSuccess;
}

CUresult cuStreamDestroy_v2(CUstream handle) {
  const Entry entry("cuStreamDestroy_v2");
  if (entry.lost()) return entry.code();
  auto* stream = world().check<Stream>(entry.call(), handle, Kind::stream);
  if (stream->capture != nullptr) misuse("cuStreamDestroy_v2: it is being captured");
  world().finish(stream);  // CUDA finishes it without telling the caller
  world().destroy(stream);
  return entry.code();
}

CUresult cuStreamSynchronize(CUstream handle) {
  const Entry entry("cuStreamSynchronize");
  if (entry.lost()) return entry.code();
  if (const CUresult code = entry.refuse_in_capture()) return code;
  world().finish(world().stream(entry.call(), handle));
  return entry.code();
}

CUresult cuCtxSynchronize(void) {
  const Entry entry("cuCtxSynchronize");
  if (entry.lost()) return entry.code();
  const bool captured = world().has_captures(entry.context());
  if (const CUresult code = entry.synchronize_device()) return code;
  if (captured) return kCaptureUnsupported;  // a stream that is captured cannot be waited for
  world().finish_all(entry.context());
  return entry.code();
}

CUresult cuStreamWaitEvent(CUstream handle, CUevent event, unsigned) {
  const Entry entry("cuStreamWaitEvent");
  if (entry.code() != kSuccess) return entry.code();
  entry.forbid_capture();
  const auto* waited = world().check<Event>(entry.call(), event, Kind::event);
  return world().enqueue(world().stream(entry.call(), handle),
                         {entry.call(), {}, {}, waited->mark, {}});
}

CUresult cuStreamBeginCapture_v2(CUstream handle, int) {
  const Entry entry("cuStreamBeginCapture_v2");
  if (entry.code() != kSuccess) return entry.code();
  if (handle == nullptr) return kCaptureUnsupported;
  Stream* stream = world().stream(entry.call(), handle);
  if (stream->capture != nullptr) misuse("cuStreamBeginCapture_v2: it is being captured already");
  stream->capture = world().make<Graph>(Kind::graph, entry.context());
  stream->capturing = std::this_thread::get_id();
  stream->invalid = false;
  ++world().capture_numbers.begun;
  set_capturing(true);
  return kSuccess;
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph* graph) {
  const Entry entry("cuStreamEndCapture");
  if (entry.lost()) return entry.code();
  Stream* stream = world().stream(entry.call(), handle);
  if (stream->capture == nullptr) misuse("cuStreamEndCapture: it is not being captured");
  if (stream->capturing != std::this_thread::get_id())
    misuse("cuStreamEndCapture: another thread began it");
  Graph* made = stream->capture;
  const bool invalid = stream->invalid;
  stream->capture = nullptr;
  stream->invalid = false;
  set_capturing(false);
  if (entry.code() == kSuccess && !invalid) {
    *graph = reinterpret_cast<CUgraph>(made);
    return kSuccess;
  }
  world().destroy(made);  // a capture that became invalid gives no graph
  *graph = nullptr;
  return entry.code() != kSuccess ? entry.code() : int(kCaptureInvalidated);
}

CUresult cuStreamIsCapturing(CUstream handle, int* status) {
  const Entry entry("cuStreamIsCapturing");
  if (entry.code() != kSuccess) return entry.code();
  const Stream* stream = world().stream(entry.call(), handle);
  *status = stream->capture == nullptr ? 0 : stream->invalid ? 2 : 1;
  return kSuccess;
}

CUresult cuEventCreate(CUevent* event, unsigned flags) {
  const Entry entry("cuEventCreate");
  if (entry.code() != kSuccess) return entry.code();
  auto* made = world().make<Event>(Kind::event, entry.context());
  made->timed = (flags & kEventNoTiming) == 0;
  *event = reinterpret_cast<CUevent>(made);
  return kSuccess;
}

CUresult cuEventDestroy_v2(CUevent event) {
  const Entry entry("cuEventDestroy_v2");
  if (!entry.lost()) world().destroy(world().check<Event>(entry.call(), event, Kind::event));
  return entry.code();
}

CUresult cuEventRecord(CUevent handle, CUstream stream) {
  const Entry entry("cuEventRecord");
  if (entry.code() != kSuccess) return entry.code();
  entry.forbid_capture();
  auto* event = world().check<Event>(entry.call(), handle, Kind::event);
  Stream* recorded = world().stream(entry.call(), stream);
  event->mark = std::make_shared<Mark>();
  event->mark->stream = recorded;
  return world().enqueue(recorded, {entry.call(), {}, {}, {}, event->mark});
}

CUresult cuEventSynchronize(CUevent handle) {
  const Entry entry("cuEventSynchronize");
  if (entry.lost()) return entry.code();
  if (const CUresult code = entry.refuse_in_capture()) return code;
  const auto* event = world().check<Event>(entry.call(), handle, Kind::event);
  if (event->mark) world().finish(event->mark->stream, event->mark.get());
  return entry.code();
}

CUresult cuEventElapsedTime(float* milliseconds, CUevent from, CUevent to) {
  const Entry entry("cuEventElapsedTime");
  if (entry.code() != kSuccess) return entry.code();
  const auto* first = world().check<Event>(entry.call(), from, Kind::event);
  const auto* last = world().check<Event>(entry.call(), to, Kind::event);
  if (!first->timed || !last->timed || !first->mark || !last->mark) return kInvalidHandle;
  if (!first->mark->passed || !last->mark->passed) return kNotReady;
  *milliseconds = float(last->mark->milliseconds - first->mark->milliseconds);
  return kSuccess;
}

CUresult cuLaunchKernel(CUfunction handle, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                        CUstream stream, void** values, void** extra) {
  const Entry entry("cuLaunchKernel");
  if (entry.code() != kSuccess) return entry.code();
  const auto* function = world().check<Function>(entry.call(), handle, Kind::function);
  const std::string& name = function->name;
  if (!function->module->live) misuse(name + ": its module was unloaded");
  if (grid_x == 0 || grid_y == 0 || grid_z != 1 || grid_x > 0x7fffffff || grid_y > 65535)
    misuse(name + ": a grid of " + std::to_string(grid_x) + " x " + std::to_string(grid_y) +
           " blocks");
  if (block_x * block_y * block_z == 0 || block_x * block_y * block_z > 1024 || block_z > 64)
    misuse(name + ": a block of " + std::to_string(block_x) + " x " + std::to_string(block_y) +
           " threads");
  if (shared != 0 || extra != nullptr) misuse(name + ": no kernel takes shared memory or extras");
  const simt::Kernel* kernel = simt::find(name.c_str());
  // The values are read now, whatever happens to them before the kernel runs.
  std::vector<std::vector<char>> kept;
  for (size_t k = 0; k < kernel->parameters.size(); ++k) {
    const char* value = static_cast<const char*>(values[k]);
    kept.emplace_back(value, value + kernel->parameters[k]);
  }
  const simt::Size grid{grid_x, grid_y, 1}, block{block_x, block_y, block_z};
  const std::vector<Use> uses = find_uses(name, kernel->parameters, values);
  const uintptr_t spoiled = name == world().spoiled && !uses.empty() ? uses.back().address : 0;
  return world().enqueue(world().stream(entry.call(), stream),
                         {name,
                          uses,
                          [=]() mutable {
                            std::vector<void*> pointers;
                            for (std::vector<char>& value : kept) pointers.push_back(value.data());
                            ++world().launches;
                            launch(*kernel, grid, block, pointers.data());
                            if (spoiled != 0) reinterpret_cast<uint8_t*>(spoiled)[3] ^= 0x40;
                          },
                          {},
                          {}});
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph handle, unsigned long long) {
  const Entry entry("cuGraphInstantiateWithFlags");
  if (entry.code() != kSuccess) return entry.code();
  const auto* graph = world().check<Graph>(entry.call(), handle, Kind::graph);
  if (const CUresult code = entry.synchronize_device()) return code;  // it takes memory
  auto* made = world().make<Exec>(Kind::exec, entry.context());
  made->work = graph->work;
  *exec = reinterpret_cast<CUgraphExec>(made);
  return kSuccess;
}

CUresult cuGraphLaunch(CUgraphExec handle, CUstream stream) {
  const Entry entry("cuGraphLaunch");
  if (entry.code() != kSuccess) return entry.code();
  const auto* exec = world().check<Exec>(entry.call(), handle, Kind::exec);
  Stream* launched = world().stream(entry.call(), stream);
  if (launched->capture != nullptr) misuse("cuGraphLaunch: on a stream that is being captured");
  ++world().graph_launches;
  for (const Work& work : exec->work) world().enqueue(launched, work);
  return kSuccess;
}

CUresult cuGraphExecDestroy(CUgraphExec handle) {
  const Entry entry("cuGraphExecDestroy");
  if (entry.lost()) return entry.code();
  if (const CUresult code = entry.synchronize_device()) return code;  // it frees memory
  world().destroy(world().check<Exec>(entry.call(), handle, Kind::exec));
  return entry.code();
}

CUresult cuGraphDestroy(CUgraph handle) {
  const Entry entry("cuGraphDestroy");
  if (!entry.lost()) world().destroy(world().check<Graph>(entry.call(), handle, Kind::graph));
  return entry.code();
}

int simcuda_enqueue(void* stream, void (*work)(void*), void* user) {
  const Entry entry("simcuda_enqueue");
  if (entry.code() != kSuccess) return entry.code();
  return world().enqueue(world().stream(entry.call(), static_cast<CUstream>(stream)),
                         {entry.call(), {}, [=] { work(user); }, {}, {}});
}

}  // extern "C"
