// OpenVINO's C library, found and loaded at run time.
#pragma once

#include <openvino/c/openvino.h>

#include <string>

#include "failure.hpp"

// Lists every function that the backend calls. ov_core_compile_model_props would be simpler to call
// than the variadic ov_core_compile_model, but it exists only since 2026.
#define ANOCO_OPENVINO_FUNCTIONS(each)          \
  each(ov_available_devices_free);              \
  each(ov_compiled_model_create_infer_request); \
  each(ov_compiled_model_free);                 \
  each(ov_const_port_get_shape);                \
  each(ov_core_compile_model);                  \
  each(ov_core_create);                         \
  each(ov_core_free);                           \
  each(ov_core_get_available_devices);          \
  each(ov_core_read_model);                     \
  each(ov_free);                                \
  each(ov_get_error_info);                      \
  each(ov_get_last_err_msg);                    \
  each(ov_get_openvino_version);                \
  each(ov_infer_request_free);                  \
  each(ov_infer_request_get_tensor);            \
  each(ov_infer_request_infer);                 \
  each(ov_model_const_input_by_name);           \
  each(ov_model_const_output_by_name);          \
  each(ov_model_free);                          \
  each(ov_model_reshape_input_by_name);         \
  each(ov_output_const_port_free);              \
  each(ov_partial_shape_create_static);         \
  each(ov_partial_shape_free);                  \
  each(ov_port_get_element_type);               \
  each(ov_shape_free);                          \
  each(ov_tensor_create);                       \
  each(ov_tensor_data);                         \
  each(ov_tensor_free);                         \
  each(ov_tensor_get_byte_size);                \
  each(ov_version_free)

namespace anoco {

// Holds the library's functions under their own names. The library stays loaded until the program
// ends, because threads of its own may still run in it.
struct OpenVino {
#define ANOCO_DECLARE(function) decltype(&::function) function = nullptr
  ANOCO_OPENVINO_FUNCTIONS(ANOCO_DECLARE);
#undef ANOCO_DECLARE
  std::string version;  // such as "2026.4.1"

  // `where` is a file or a folder; with NULL the library is searched for. A library that is missing
  // or too old is a Failure (ANOCO_NO_BACKEND).
  explicit OpenVino(const char* where);

  // Turns a failed call into a Failure that reads "what cannot be done: what OpenVINO says; what to
  // do".
  template <class Text>
  void check(ov_status_e result, anoco_status status, const Text& cannot) const {
    if (result != ov_status_e::OK) throw_error(result, status, cannot);
  }

 private:
  [[noreturn]] void throw_error(ov_status_e result, anoco_status status,
                                const std::string& cannot) const;
};

}  // namespace anoco
