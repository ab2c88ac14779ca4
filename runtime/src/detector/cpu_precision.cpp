#include "detector/cpu_precision.hpp"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <initializer_list>
#include <sstream>
#include <vector>

#include "failure.hpp"

namespace anoco {
namespace {

constexpr char kVariable[] = "ANOCO_EDGE_CPU_PRECISION";

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

// Returns the instruction sets of the processor by the names that the kernel gives them.
std::vector<std::string> cpu_flags() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.compare(0, 5, "flags") != 0) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    std::vector<std::string> found;
    for (std::string word; words >> word;) found.push_back(word);
    return found;
  }
  return {};
}

bool has_one(std::initializer_list<const char*> sets) {
  const std::vector<std::string> flags = cpu_flags();
  return std::any_of(sets.begin(), sets.end(), [&](const char* set) {
    return std::find(flags.begin(), flags.end(), set) != flags.end();
  });
}

// Says why the processor lacks the products of a precision; "" if it has them.
std::string why_not_here(const std::string& precision) {
  if (precision == "bf16" && !has_one({"avx512_bf16", "amx_bf16"}))
    return "this processor has no AVX512-BF16 or AMX";
  if (precision == "int8" && !has_one({"avx512_vnni", "avx_vnni", "amx_int8"}))
    return "this processor has no VNNI or AMX";
  return "";
}

bool on_processor(const EngineChoice& engine) {
  return engine.backend == "openvino" && (engine.device.empty() || upper(engine.device) == "CPU");
}

void check_asked(const std::string& asked, const EngineChoice& engine, const Bundle& bundle) {
  const std::string graph = bundle.manifest().precision, path = bundle.path().string();
  if (asked != "fp32" && asked != "bf16" && asked != "int8")
    fail(ANOCO_INVALID_ARGUMENT, "cpu_precision is '" + asked + "'",
         "use auto, fp32, bf16 or int8");
  if (!on_processor(engine))
    fail(ANOCO_INVALID_ARGUMENT,
         asked + " on the processor was asked for, and " +
             (engine.backend == "openvino" ? engine.device : engine.backend) +
             " computes elsewhere",
         "leave cpu_precision out, or use openvino on the CPU");
  if (asked == "int8" && graph != "int8")
    fail(ANOCO_BAD_BUNDLE,
         "INT8 was asked for, and the graph of " + path + " is " + upper(graph) +
             ": only a graph that was exported so is computed in INT8",
         "export the bundle again in INT8, with pictures of good parts to calibrate it");
  if (asked != "int8" && graph == "int8")
    fail(ANOCO_BAD_BUNDLE, upper(asked) + " was asked for, and the graph of " + path + " is INT8",
         "leave cpu_precision out, or export the bundle again in FP32");
  if (const std::string missing = why_not_here(asked); !missing.empty())
    fail(ANOCO_NO_BACKEND, missing, "set cpu_precision to auto");
}

// Says that the environment keeps new products in FP32; "" if it does not.
std::string kept_from_bf16() {
  const char* set = std::getenv(kVariable);
  const std::string value = set == nullptr ? "" : set;
  if (value.empty() || value == "auto") return "";
  if (value != "fp32")
    fail(ANOCO_INVALID_ARGUMENT, std::string(kVariable) + " is '" + value + "'",
         "set it to fp32 or auto, or unset it");
  return std::string(kVariable) + " is fp32";
}

}  // namespace

PrecisionChoice plan_precision(const std::string& asked, const EngineChoice& engine,
                               const Bundle& bundle, const Product* product) {
  if (!asked.empty()) {
    check_asked(asked, engine, bundle);
    return {asked, "asked for"};
  }
  if (!on_processor(engine)) return {};
  if (bundle.manifest().precision == "int8") {
    const std::string slow = why_not_here("int8");
    return {"int8", "the graph is INT8" + (slow.empty() ? "" : ", but slow: " + slow)};
  }
  if (product != nullptr && !product->bf16) return {"fp32", "the product was taught in it"};
  if (const std::string missing = why_not_here("bf16"); !missing.empty()) return {"fp32", missing};
  if (product != nullptr) return {"bf16", "the product was taught in it"};
  if (const std::string kept = kept_from_bf16(); !kept.empty()) return {"fp32", kept};
  return {"bf16", "the processor has it, and the self-test passes its limits"};
}

std::string mismatch(const Product& product, const PrecisionChoice& runs) {
  if (product.bf16 == (runs.name == "bf16")) return "";
  const std::string graph = "the precision of its graph";
  return "product '" + product.name + "' was taught in " + (product.bf16 ? "BF16" : graph) +
         " and is judged in " + (runs.name.empty() ? graph : upper(runs.name)) + " (" +
         runs.reason +
         "): scores differ by some percent, and its threshold was not computed from such scores; "
         "calibrate it again on this machine";
}

}  // namespace anoco
