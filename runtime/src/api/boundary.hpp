// Shared by every function of the C boundary: no exception crosses it, arguments are checked, and
// structs of other versions are understood.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>

#include "failure.hpp"
#include "status_guard.hpp"

namespace anoco {

// Keeps the text for anoco_last_error.
void remember(const char* text) noexcept;

// The guard of a C function: the text of what went wrong is kept for anoco_last_error.
template <class Work>
anoco_status guarded(Work&& work) noexcept {
  return status_guard(work, remember);
}

inline void need(const void* pointer, const char* name) {
  if (pointer == nullptr) fail(ANOCO_INVALID_ARGUMENT, std::string(name) + " is null");
}

inline void check_struct_size(uint32_t given, size_t known) {
  if (given < sizeof(uint32_t) || given > known)
    fail(ANOCO_INVALID_ARGUMENT,
         "struct_size is " + std::to_string(given) +
             ": fill structs with their INIT macro, and use the header of this library");
}

// A caller that was compiled against an older header passes a shorter struct; the fields that it
// lacks keep their defaults.
template <class Options>
Options read_options(const Options* given, Options defaults) {
  if (given == nullptr) return defaults;
  check_struct_size(given->struct_size, sizeof(Options));
  std::memcpy(&defaults, given, given->struct_size);
  return defaults;
}

// A reserved field must be zero, so that a later version can give it a meaning.
inline void check_reserved(uint32_t value, const char* whose) {
  if (value != 0)
    fail(ANOCO_INVALID_ARGUMENT, std::string(whose) + " reserved field is " +
                                     std::to_string(value) +
                                     ": fill structs with their INIT macro");
}

// Checks a struct that results are written to, before the work is done, because the check may fail.
template <class Out>
void check_out(const Out* out) {
  need(out, "out");
  check_struct_size(out->struct_size, sizeof(Out));
}

template <class Out>
void write_out(Out* out, Out value) {
  value.struct_size = out->struct_size;
  std::memcpy(out, &value, value.struct_size);
}

// Returns the number of threads for a scorer or a context; 0 means all processors.
int scoring_threads(uint32_t threads);

}  // namespace anoco
