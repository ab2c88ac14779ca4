#include "backends/openvino/devices.hpp"

#include <algorithm>

namespace anoco {
namespace {

std::string upper(std::string text) {
  for (char& c : text)
    if (c >= 'a' && c <= 'z') c = char(c - 'a' + 'A');
  return text;
}

}  // namespace

std::vector<std::string> found_devices(const OpenVino& ov, const ov_core_t* core) {
  ov_available_devices_t list{};
  ov.check(ov.ov_core_get_available_devices(core, &list), ANOCO_NO_BACKEND,
           "OpenVINO cannot list its devices");
  std::vector<std::string> found(list.devices, list.devices + list.size);
  ov.ov_available_devices_free(&list);
  return found;
}

std::string pick_device(const std::string& wanted, const std::vector<std::string>& found) {
  const std::string name = upper(wanted);
  const std::vector<std::string> names =
      name == "AUTO" ? std::vector<std::string>{"GPU", "CPU"} : std::vector<std::string>{name};
  for (const std::string& each : names)
    for (const std::string& device : {each, each + ".0"})  // OpenVINO numbers several of a kind
      if (std::find(found.begin(), found.end(), device) != found.end()) return device;
  std::string available;
  for (const std::string& device : found) available += device + ", ";
  fail(ANOCO_NO_BACKEND, "OpenVINO finds no device '" + wanted + "' here: use " + available +
                             "AUTO; a GPU or NPU needs its driver installed");
}

}  // namespace anoco
