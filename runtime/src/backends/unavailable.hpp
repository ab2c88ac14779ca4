// Stands in for a backend whose headers were not found when the library was built. Its `open` fails
// and says so.
#pragma once

#include <cstdio>

#include "anoco_backend.h"

namespace anoco {

// `why` must point to a constant, because the backend keeps the pointer.
inline anoco_backend unavailable_backend(const char* name, const char* why) {
  anoco_backend backend{};
  backend.struct_size = sizeof backend;
  backend.name = name;
  backend.user = const_cast<char*>(why);
  backend.open = [](void* user, const anoco_model*, void**, char* error, size_t size) {
    std::snprintf(error, size, "%s", static_cast<const char*>(user));
    return anoco_status{ANOCO_NO_BACKEND};
  };
  backend.close = [](void*) {};
  backend.create_request = [](void*, void**, char*, size_t) {
    return anoco_status{ANOCO_NO_BACKEND};
  };
  backend.destroy_request = [](void*) {};
  backend.run = [](void*, const uint8_t*, const float**, char*, size_t) {
    return anoco_status{ANOCO_NO_BACKEND};
  };
  return backend;
}

}  // namespace anoco
