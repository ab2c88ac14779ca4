// The fake backend with faults that tests switch on, and a log that records what it receives.
#pragma once

#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/check.h"
#include "tests/fake_backend.hpp"

namespace faulty {

enum class Fault { good, throws, throws_a_number, no_memory, fails, not_a_number, another_model };
inline Fault on_open = Fault::good, on_request = Fault::good, on_run = Fault::good;

inline anoco_status act(Fault fault) {
  if (fault == Fault::throws) throw std::runtime_error("out of the blue");
  if (fault == Fault::throws_a_number) throw 7;
  if (fault == Fault::no_memory) throw std::bad_alloc();
  return fault == Fault::fails ? ANOCO_ENGINE : ANOCO_OK;
}

inline anoco_status open(void* user, const anoco_model* model, void** engine, char* error,
                         size_t size) {
  const anoco_status status = act(on_open);
  return status != ANOCO_OK ? status : fake::open(user, model, engine, error, size);
}

inline anoco_status request(void* engine, void** request, char* error, size_t size) {
  const anoco_status status = act(on_request);
  return status != ANOCO_OK ? status : fake::create_request(engine, request, error, size);
}

inline anoco_status run(void* request, const uint8_t* pixels, const float** features, char* error,
                        size_t size) {
  const anoco_status status = act(on_run);
  if (status != ANOCO_OK) return status;
  auto* made = static_cast<fake::Request*>(request);
  if (on_run == Fault::another_model || on_run == Fault::not_a_number) {
    fake::compute_features(*made->engine, pixels, made->features.data());
    if (on_run == Fault::not_a_number)
      made->features.back() = std::numeric_limits<float>::quiet_NaN();
    *features = made->features.data();
    return ANOCO_OK;
  }
  return fake::run(request, pixels, features, error, size);
}

inline void add(const std::string& bundle) {
  anoco_backend backend = {};
  backend.struct_size = sizeof backend;
  backend.name = "faulty";
  backend.user = const_cast<char*>(bundle.c_str());
  backend.open = open;
  backend.close = fake::close;
  backend.create_request = request;
  backend.destroy_request = fake::destroy_request;
  backend.run = run;
  CHECK(anoco_register_backend(&backend) == ANOCO_OK);
}

struct Log {
  std::vector<std::pair<int32_t, std::string>> lines;
  bool throws = false;

  bool has(int32_t level, const std::string& text) const {
    for (const auto& [at, line] : lines)
      if (at == level && line.find(text) != line.npos) return true;
    return false;
  }
};

inline void listen(void* user, int32_t level, const char* text) {
  Log* log = static_cast<Log*>(user);
  log->lines.emplace_back(level, text);
  if (log->throws) throw std::runtime_error("the log is full");
}

}  // namespace faulty
