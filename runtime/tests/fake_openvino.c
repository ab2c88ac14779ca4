/* Stands in for libopenvino_c.so where a test needs devices or versions that this machine does not
 * have: FAKE_VERSION, FAKE_DEVICES ("CPU,GPU.0"), FAKE_RANK. Any graph takes uint8 [1, 64, 64, 3]
 * and gives float32 [1, 16, 8]. Compiling fails, and says what was asked for; with FAKE_THROW set
 * it throws a C++ exception instead (throw_number.cpp). */
#include <openvino/c/openvino.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void throw_number(void);

static char message[512] = "";
static int64_t pixels[] = {1, 64, 64, 3}, features[] = {1, 16, 8};
static char thing; /* something for a pointer to point at */

ov_status_e ov_get_openvino_version(ov_version_t* version) {
  version->buildNumber = version->description = getenv("FAKE_VERSION");
  return OK;
}

ov_status_e ov_core_get_available_devices(const ov_core_t* core, ov_available_devices_t* devices) {
  static char *names[8], text[128];
  (void)core;
  strncpy(text, getenv("FAKE_DEVICES"), sizeof text - 1);
  devices->devices = names;
  for (char* name = strtok(text, ","); name != NULL; name = strtok(NULL, ","))
    names[devices->size++] = name;
  return OK;
}

ov_status_e ov_core_compile_model(const ov_core_t* core, const ov_model_t* model,
                                  const char* device, const size_t count,
                                  ov_compiled_model_t** compiled, ...) {
  va_list how;
  (void)core, (void)model;
  if (getenv("FAKE_THROW") != NULL) throw_number();
  va_start(how, compiled);
  strcpy(message, device);
  for (size_t k = 0; k < count; ++k)
    strcat(strcat(message, k % 2 == 0 ? " " : "="), va_arg(how, const char*));
  va_end(how);
  return GENERAL_ERROR;
}

const char* ov_get_last_err_msg(void) { return message; }
const char* ov_get_error_info(ov_status_e status) { return (void)status, "error"; }
void ov_free(const char* text) { (void)text; }
void ov_version_free(ov_version_t* version) { (void)version; }
void ov_available_devices_free(ov_available_devices_t* devices) { (void)devices; }

ov_status_e ov_core_create(ov_core_t** core) { return *core = (ov_core_t*)&thing, OK; }
void ov_core_free(ov_core_t* core) { (void)core; }

ov_status_e ov_core_read_model(const ov_core_t* core, const char* path, const char* weights,
                               ov_model_t** model) {
  (void)core, (void)path, (void)weights;
  return *model = (ov_model_t*)&thing, OK;
}
void ov_model_free(ov_model_t* model) { (void)model; }

ov_status_e ov_partial_shape_create_static(const int64_t rank, const int64_t* dims,
                                           ov_partial_shape_t* shape) {
  (void)rank, (void)dims, (void)shape;
  return OK;
}
void ov_partial_shape_free(ov_partial_shape_t* shape) { (void)shape; }
ov_status_e ov_model_reshape_input_by_name(const ov_model_t* model, const char* name,
                                           const ov_partial_shape_t shape) {
  (void)model, (void)name, (void)shape;
  return OK;
}

/* A port is represented by its shape. */
ov_status_e ov_model_const_input_by_name(const ov_model_t* model, const char* name,
                                         ov_output_const_port_t** port) {
  (void)model, (void)name;
  return *port = (ov_output_const_port_t*)pixels, OK;
}
ov_status_e ov_model_const_output_by_name(const ov_model_t* model, const char* name,
                                          ov_output_const_port_t** port) {
  (void)model, (void)name;
  return *port = (ov_output_const_port_t*)features, OK;
}
ov_status_e ov_const_port_get_shape(const ov_output_const_port_t* port, ov_shape_t* shape) {
  const char* rank = getenv("FAKE_RANK"); /* no real graph has it */
  shape->dims = (int64_t*)port;
  shape->rank = rank != NULL ? atoll(rank) : shape->dims == pixels ? 4 : 3;
  return OK;
}
ov_status_e ov_shape_free(ov_shape_t* shape) { return (void)shape, OK; }
void ov_output_const_port_free(ov_output_const_port_t* port) { (void)port; }

/* FAKE_SHIFT shifts the numbers of the types, as versions of OpenVINO did. */
static int shift(void) { return atoi(getenv("FAKE_SHIFT")); }
ov_status_e ov_port_get_element_type(const ov_output_const_port_t* port, ov_element_type_e* type) {
  *type = (ov_element_type_e)(((const int64_t*)port == pixels ? U8 : F32) + shift());
  return OK;
}
ov_status_e ov_tensor_create(const ov_element_type_e type, const ov_shape_t shape,
                             ov_tensor_t** tensor) {
  static size_t bytes;
  bytes = (size_t)shape.dims[0] * ((int)type == U8 + shift() ? 1 : 4);
  return *tensor = (ov_tensor_t*)&bytes, OK;
}
ov_status_e ov_tensor_get_byte_size(const ov_tensor_t* tensor, size_t* size) {
  return *size = *(const size_t*)tensor, OK;
}
void ov_tensor_free(ov_tensor_t* tensor) { (void)tensor; }

/* This is never called. */
ov_status_e ov_compiled_model_create_infer_request(const ov_compiled_model_t* compiled,
                                                   ov_infer_request_t** request) {
  (void)compiled, (void)request;
  return GENERAL_ERROR;
}
void ov_compiled_model_free(ov_compiled_model_t* compiled) { (void)compiled; }
void ov_infer_request_free(ov_infer_request_t* request) { (void)request; }
ov_status_e ov_infer_request_get_tensor(const ov_infer_request_t* request, const char* name,
                                        ov_tensor_t** tensor) {
  (void)request, (void)name, (void)tensor;
  return GENERAL_ERROR;
}
ov_status_e ov_infer_request_infer(ov_infer_request_t* request) {
  return (void)request, GENERAL_ERROR;
}
ov_status_e ov_tensor_data(const ov_tensor_t* tensor, void** data) {
  (void)tensor, (void)data;
  return GENERAL_ERROR;
}
