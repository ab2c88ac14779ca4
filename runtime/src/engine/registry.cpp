#include <list>
#include <mutex>

#include "backends/openvino/openvino.hpp"
#include "backends/tensorrt/tensorrt.hpp"
#include "engine/engine.hpp"
#include "failure.hpp"

namespace anoco {
namespace {

struct Entry {
  explicit Entry(const anoco_backend& given) : name(given.name), backend(given) {
    backend.name = name.c_str();
  }
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;

  std::string name;
  anoco_backend backend;
};

struct Registry {
  std::mutex mutex;
  std::list<Entry> entries;  // a list, so that names stay where engines point

  Registry() {
    entries.emplace_back(openvino_backend());
    entries.emplace_back(tensorrt_backend());
  }

  const Entry* find(const std::string& name) const {
    for (const Entry& entry : entries)
      if (entry.name == name) return &entry;
    return nullptr;
  }
};

// The registry is never destroyed, because detectors in the program's static objects may outlive
// it.
Registry& registry() {
  static Registry* const only = new Registry;
  return *only;
}

void check_functions(const anoco_backend& backend) {
  const std::pair<bool, const char*> functions[] = {
      {backend.open != nullptr, "open"},
      {backend.close != nullptr, "close"},
      {backend.create_request != nullptr, "create_request"},
      {backend.destroy_request != nullptr, "destroy_request"},
      {backend.run != nullptr, "run"},
  };
  for (const auto& [is_set, function] : functions)
    if (!is_set)
      fail(ANOCO_INVALID_ARGUMENT,
           "backend '" + std::string(backend.name) + "': its function '" + function + "' is null",
           "set all of open, close, create_request, destroy_request and run");
  if ((backend.cuda_device != nullptr) != (backend.run_device != nullptr))
    fail(ANOCO_INVALID_ARGUMENT,
         "backend '" + std::string(backend.name) + "': cuda_device and run_device come together",
         "set both, or none for an engine on the host");
}

}  // namespace

void register_backend(const anoco_backend& backend) {
  if (backend.name == nullptr || backend.name[0] == 0)
    fail(ANOCO_INVALID_ARGUMENT, "the backend has no name",
         "set its name, by which detectors ask for it");
  check_functions(backend);
  Registry& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  if (all.find(backend.name) != nullptr)
    fail(ANOCO_INVALID_ARGUMENT, "there is a backend '" + std::string(backend.name) +
                                     "' already: register it once, or under another name");
  all.entries.emplace_back(backend);
}

anoco_backend find_backend(const std::string& name) {
  Registry& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  if (const Entry* entry = all.find(name)) return entry->backend;
  std::string names;
  for (const Entry& entry : all.entries) names += (names.empty() ? "" : ", ") + entry.name;
  fail(ANOCO_NO_BACKEND, "there is no backend '" + name + "': use one of " + names +
                             ", or register yours with anoco_register_backend first");
}

}  // namespace anoco
