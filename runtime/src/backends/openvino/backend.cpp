// Compiles the graph for one picture at a time and makes the requests that run it.
#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "backends/openvino/devices.hpp"
#include "backends/openvino/graph_file.hpp"
#include "backends/openvino/library.hpp"
#include "backends/openvino/openvino.hpp"
#include "backends/openvino/signal_stack.hpp"
#include "status_guard.hpp"

namespace anoco {
namespace {

constexpr char kInput[] = "pixels", kOutput[] = "features";

template <class T>
using Owned = std::unique_ptr<T, void (*)(T*)>;

using Shape = std::vector<int64_t>;

std::string shape_text(const Shape& shape) {
  std::string text;
  for (const int64_t length : shape) text += (text.empty() ? "[" : ", ") + std::to_string(length);
  return text + "]";
}

// ---- The graph ----

Owned<ov_model_t> read_graph(const OpenVino& ov, const ov_core_t* core, const anoco_model& model) {
  check_graph_file(model.path);
  ov_model_t* raw = nullptr;
  const std::string cannot = "OpenVINO " + ov.version + " cannot read " + model.path +
                             ", which is damaged or made for a newer version";
  ov.check(ov.ov_core_read_model(core, model.path, nullptr, &raw), ANOCO_BAD_BUNDLE, cannot);
  Owned<ov_model_t> graph(raw, ov.ov_model_free);

  const Shape wanted{1, model.height, model.width, 3};
  ov_partial_shape_t shape{};
  ov.check(ov.ov_partial_shape_create_static(int64_t(wanted.size()), wanted.data(), &shape),
           ANOCO_ENGINE, "OpenVINO cannot make the shape " + shape_text(wanted));
  const ov_status_e reshaped = ov.ov_model_reshape_input_by_name(graph.get(), kInput, shape);
  ov.ov_partial_shape_free(&shape);
  ov.check(reshaped, ANOCO_BAD_BUNDLE,
           std::string(model.path) + " does not take pixels of shape " + shape_text(wanted));
  return graph;
}

struct PortSpec {
  const char* name;
  ov_element_type_e type;
  const char* type_name;
  size_t type_size;
  Shape shape;
};

// The numbers of the element types moved by one in 2025, when UNDEFINED was removed from the list,
// and the header that this file was compiled with may be older or newer than the library. In the
// list, the neighbors of f32 and u8 have other sizes, so the number and the size together identify
// the type.
bool is_type(const OpenVino& ov, ov_element_type_e type, const PortSpec& wanted) {
  if (std::abs(int(type) - int(wanted.type)) > 1) return false;
  int64_t count = 8;  // several, because types below one byte are packed
  ov_tensor_t* raw = nullptr;
  if (ov.ov_tensor_create(type, {1, &count}, &raw) != ov_status_e::OK) return false;
  const Owned<ov_tensor_t> tensor(raw, ov.ov_tensor_free);
  size_t size = 0;
  return ov.ov_tensor_get_byte_size(raw, &size) == ov_status_e::OK &&
         size == size_t(count) * wanted.type_size;
}

void check_port(const OpenVino& ov, const char* path, ov_output_const_port_t* raw,
                const PortSpec& wanted) {
  const Owned<ov_output_const_port_t> port(raw, ov.ov_output_const_port_free);
  ov_shape_t found{};
  ov.check(ov.ov_const_port_get_shape(raw, &found), ANOCO_BAD_BUNDLE,
           std::string(path) + " has no fixed shape of " + wanted.name);
  const Shape shape(found.dims, found.dims + found.rank);
  ov.ov_shape_free(&found);
  ov_element_type_e type{};
  ov.check(ov.ov_port_get_element_type(raw, &type), ANOCO_BAD_BUNDLE,
           std::string(path) + " has no type of " + wanted.name);
  if (shape != wanted.shape)
    fail(ANOCO_BAD_BUNDLE,
         std::string(path) + ": " + wanted.name + " are of shape " + shape_text(shape) +
             ", the manifest says " + shape_text(wanted.shape),
         "export the bundle again");
  if (!is_type(ov, type, wanted))
    fail(ANOCO_BAD_BUNDLE,
         std::string(path) + ": " + wanted.name + " are not of type " + wanted.type_name,
         "export the bundle again");
}

void check_ports(const OpenVino& ov, const ov_model_t* graph, const anoco_model& model) {
  ov_output_const_port_t* port = nullptr;
  ov.check(ov.ov_model_const_input_by_name(graph, kInput, &port), ANOCO_BAD_BUNDLE,
           std::string(model.path) + " has no input 'pixels'");
  check_port(ov, model.path, port, {kInput, U8, "uint8", 1, {1, model.height, model.width, 3}});
  ov.check(ov.ov_model_const_output_by_name(graph, kOutput, &port), ANOCO_BAD_BUNDLE,
           std::string(model.path) + " has no output 'features'");
  check_port(ov, model.path, port, {kOutput, F32, "float32", 4, {1, model.patches, model.dim}});
}

Owned<ov_compiled_model_t> compile(const OpenVino& ov, const ov_core_t* core,
                                   const ov_model_t* graph, const std::string& device,
                                   const anoco_model& model) {
  const std::string threads = std::to_string(model.threads);
  std::array<const char*, 6> how{"PERFORMANCE_HINT", "LATENCY"};
  size_t count = 2;
  const auto set = [&](const char* key, const char* value) {
    how[count++] = key;
    how[count++] = value;
  };
  // Without this hint OpenVINO rounds to bf16 or f16 wherever the device supports it, which gives
  // other features than the exported ones.
  const bool half = device == "CPU" && model.cpu_precision != nullptr &&
                    std::strcmp(model.cpu_precision, "bf16") == 0;
  if (device.compare(0, 3, "NPU") != 0) set("INFERENCE_PRECISION_HINT", half ? "bf16" : "f32");
  if (device == "CPU" && model.threads != 0) set("INFERENCE_NUM_THREADS", threads.c_str());

  ov_compiled_model_t* raw = nullptr;
  ov.check(ov.ov_core_compile_model(core, graph, device.c_str(), count, &raw, how[0], how[1],
                                    how[2], how[3], how[4], how[5]),
           ANOCO_ENGINE, "OpenVINO " + ov.version + " cannot compile " + model.path);
  return {raw, ov.ov_compiled_model_free};
}

// ---- What the interface's handles are ----

struct CompiledGraph {
  OpenVino ov;
  Owned<ov_core_t> core;
  Owned<ov_compiled_model_t> graph;
  size_t bytes;  // size of a picture
};

struct GraphRequest {
  const OpenVino& ov;
  Owned<ov_infer_request_t> request;
  Owned<ov_tensor_t> pixels, features;  // the request's memory, which the device can reach
  size_t bytes;
};

std::unique_ptr<CompiledGraph> open_graph(const anoco_model& model) {
  const SignalStackGuard kept;
  OpenVino ov(model.library);
  ov_core_t* raw = nullptr;
  ov.check(ov.ov_core_create(&raw), ANOCO_NO_BACKEND, "OpenVINO does not start");
  Owned<ov_core_t> core(raw, ov.ov_core_free);
  const std::string device =
      pick_device(model.device != nullptr ? model.device : "CPU", found_devices(ov, raw));
  const Owned<ov_model_t> graph = read_graph(ov, raw, model);
  check_ports(ov, graph.get(), model);
  Owned<ov_compiled_model_t> compiled = compile(ov, raw, graph.get(), device, model);
  return std::make_unique<CompiledGraph>(CompiledGraph{
      std::move(ov), std::move(core), std::move(compiled), size_t(model.height * model.width * 3)});
}

Owned<ov_tensor_t> tensor_of(const OpenVino& ov, const ov_infer_request_t* request,
                             const char* name) {
  ov_tensor_t* raw = nullptr;
  ov.check(ov.ov_infer_request_get_tensor(request, name, &raw), ANOCO_ENGINE,
           std::string("there is no memory for ") + name);
  return {raw, ov.ov_tensor_free};
}

std::unique_ptr<GraphRequest> make_request(const CompiledGraph& engine) {
  const SignalStackGuard kept;
  const OpenVino& ov = engine.ov;
  ov_infer_request_t* raw = nullptr;
  ov.check(ov.ov_compiled_model_create_infer_request(engine.graph.get(), &raw), ANOCO_ENGINE,
           "OpenVINO cannot create a request");
  Owned<ov_infer_request_t> request(raw, ov.ov_infer_request_free);
  Owned<ov_tensor_t> pixels = tensor_of(ov, raw, kInput), features = tensor_of(ov, raw, kOutput);
  return std::make_unique<GraphRequest>(
      GraphRequest{ov, std::move(request), std::move(pixels), std::move(features), engine.bytes});
}

void* memory(const OpenVino& ov, const ov_tensor_t* tensor) {
  void* data = nullptr;
  ov.check(ov.ov_tensor_data(tensor, &data), ANOCO_ENGINE, "OpenVINO does not show its memory");
  return data;
}

// ---- The interface ----

anoco_status open(void*, const anoco_model* model, void** engine, char* error, size_t size) {
  return status_guard(error, size, [&] { *engine = open_graph(*model).release(); });
}

void close(void* engine) {
  const SignalStackGuard kept;
  delete static_cast<CompiledGraph*>(engine);
}

anoco_status create_request(void* engine, void** request, char* error, size_t size) {
  return status_guard(error, size, [&] {
    *request = make_request(*static_cast<const CompiledGraph*>(engine)).release();
  });
}

void destroy_request(void* request) { delete static_cast<GraphRequest*>(request); }

anoco_status run(void* request, const uint8_t* pixels, const float** features, char* error,
                 size_t size) {
  return status_guard(error, size, [&] {
    const GraphRequest& running = *static_cast<const GraphRequest*>(request);
    // The copy costs less than a thousandth of the inference (7 us of 27 ms at 256 pixels); handing
    // the caller's memory to OpenVINO would allocate for every picture.
    std::memcpy(memory(running.ov, running.pixels.get()), pixels, running.bytes);
    running.ov.check(running.ov.ov_infer_request_infer(running.request.get()), ANOCO_ENGINE,
                     "OpenVINO failed");
    *features = static_cast<const float*>(memory(running.ov, running.features.get()));
  });
}

}  // namespace

anoco_backend openvino_backend() {
  return {sizeof(anoco_backend), 0,   "openvino", nullptr, open, close, create_request,
          destroy_request,       run, nullptr,    nullptr};
}

}  // namespace anoco
