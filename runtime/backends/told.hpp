// The end of a backend's functions: what went wrong inside becomes a status and a line of text.
#pragma once

#include <cstdio>
#include <exception>
#include <new>

#include "failure.hpp"

namespace anoco {

template <class Work>
anoco_status told(char* error, size_t size, Work&& work) noexcept {
  try {
    work();
    return ANOCO_OK;
  } catch (const Failure& failure) {
    std::snprintf(error, size, "%s", failure.text.c_str());
    return failure.status;
  } catch (const std::bad_alloc&) {
    return ANOCO_OUT_OF_MEMORY;
  } catch (const std::exception& unexpected) {
    std::snprintf(error, size, "%s", unexpected.what());
    return ANOCO_INTERNAL;
  }
}

}  // namespace anoco
