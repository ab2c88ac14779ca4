// Counts what a program holds of the device, and what it has not given back.
#include "world.hpp"

namespace simcuda {

// Functions belong to their module, and a default stream to its context.
bool World::belongs_to_caller(const Handle& handle) const {
  if (handle.kind == Kind::function) return false;
  for (const auto& [context, stream] : default_streams_)
    if (stream == &handle) return false;
  return true;
}

simcuda_numbers World::count() const {
  simcuda_numbers found{};
  found.device_bytes = device_bytes_;
  found.peak_device_bytes = peak_;
  found.host_bytes = host_bytes_;
  found.objects = int64_t(live_.size() + primaries_.size());
  for (const auto& [address, handle] : handles_)
    if (belongs_to_caller(*handle)) ++found.objects;
  found.launches = launches;
  found.graph_launches = graph_launches;
  found.pageable_copies = pageable_copies;
  return found;
}

std::string World::leaks() const {
  const char* const names[] = {"streams", "events", "graphs",        "executable graphs",
                               "modules", "",       "cuBLAS handles"};
  std::map<std::string, int> counts;
  for (const auto& [address, allocation] : live_)
    ++counts[allocation.host ? "page-locked allocations" : "device allocations"];
  for (const auto& [address, handle] : handles_)
    if (belongs_to_caller(*handle)) ++counts[names[int(handle->kind)]];
  std::string text;
  for (const auto& [name, count] : counts)
    text += (text.empty() ? "" : ", ") + std::to_string(count) + " " + name;
  return text;
}

}  // namespace simcuda
