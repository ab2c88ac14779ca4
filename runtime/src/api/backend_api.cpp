// The C boundary of the plug-in interface.
#include "anoco_backend.h"
#include "api/boundary.hpp"
#include "engine/engine.hpp"

extern "C" anoco_status anoco_register_backend(const anoco_backend* backend) {
  return anoco::guarded([&] {
    anoco::need(backend, "backend");
    anoco::register_backend(anoco::read_options(backend, anoco_backend{}));
  });
}
