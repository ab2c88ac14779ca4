// The one place where exceptions end. The C functions of the library and the callbacks of the
// built-in backends are called from C, which no exception may cross: each of them runs its work in
// a guard, which turns whatever is thrown into a status and one line of text.
#pragma once

#include <cstdio>
#include <exception>
#include <new>

#include "failure.hpp"

namespace anoco {

constexpr char kUnknownException[] =
    "a defect of the library or of a callback: an exception of unknown type was thrown; let "
    "callbacks return a status instead, and report it if you have none";

// Returns ANOCO_OK, or the status of what `work` threw after `report(text)` was called with its
// text. `report` must not throw.
template <class Work, class Report>
anoco_status status_guard(Work&& work, Report&& report) noexcept {
  try {
    work();
    return ANOCO_OK;
  } catch (const Failure& failure) {
    report(failure.text.c_str());
    return failure.status;
  } catch (const std::bad_alloc&) {
    report(anoco_status_text(ANOCO_OUT_OF_MEMORY));
    return ANOCO_OUT_OF_MEMORY;
  } catch (const std::exception& unexpected) {
    report(unexpected.what());
    return ANOCO_INTERNAL;
  } catch (...) {
    report(kUnknownException);
    return ANOCO_INTERNAL;
  }
}

// The guard of a backend's callback, which reports into the caller's buffer of `size` bytes.
template <class Work>
anoco_status status_guard(char* error, size_t size, Work&& work) noexcept {
  return status_guard(work, [&](const char* text) { std::snprintf(error, size, "%s", text); });
}

}  // namespace anoco
