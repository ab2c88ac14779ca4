// The C boundary of the plug-in interface.
#include "anoco_backend.h"
#include "api/boundary.hpp"
#include "engine/engine.hpp"

extern "C" anoco_status anoco_register_backend(const anoco_backend* backend) {
  return anoco::guarded([&] {
    anoco::need(backend, "backend");
    const anoco_backend given = anoco::read_options(backend, anoco_backend{});
    anoco::check_reserved(given.reserved, "the backend's");
    anoco::register_backend(given);
  });
}
