// The embedded code is what a driver accepts: whole files, each for one target.
#include <cstring>
#include <set>
#include <string>

#include "gpu/device_code.hpp"
#include "tests/check.h"

namespace {

constexpr int kCudaMachine = 190;  // EM_CUDA

void check_cubin(const anoco::DeviceCode& code) {
  CHECK(code.size > 64 && std::memcmp(code.data,
                                      "\x7f"
                                      "ELF",
                                      4) == 0);
  CHECK(code.data[18] + 256 * code.data[19] == kCudaMachine);
}

void check_ptx(const anoco::DeviceCode& code) {
  CHECK(code.data[code.size] == 0);  // as cuModuleLoadData wants it
  const std::string text(reinterpret_cast<const char*>(code.data));
  CHECK(text.find(".target sm_" + std::to_string(code.capability)) != std::string::npos);
  CHECK(text.find(".entry anoco_candidates") != std::string::npos);
}

}  // namespace

int main() {
  const auto [codes, count] = anoco::device_codes();
  if (count == 0) std::printf("no CUDA compiler was there: nothing is embedded\n");
  std::set<std::string> names;
  for (size_t i = 0; i < count; ++i) {
    const anoco::DeviceCode& code = codes[i];
    std::printf("%s, CUDA %d, %zu bytes\n", code.name, code.cuda_version, code.size);
    names.insert(code.name);
    const std::string kind = code.ptx ? "compute_" : "sm_";
    CHECK(code.name == kind + std::to_string(code.capability));
    CHECK(code.cuda_version >= 12000);
    code.ptx ? check_ptx(code) : check_cubin(code);
  }
  CHECK(names.size() == count);
  return 0;
}
