// Finds the OpenVINO device that a name refers to.
#pragma once

#include <string>
#include <vector>

#include "backends/openvino/library.hpp"

namespace anoco {

std::vector<std::string> found_devices(const OpenVino& ov, const ov_core_t* core);

// AUTO selects a GPU if there is one, and the processor otherwise. OpenVINO's own AUTO starts on
// the processor and moves to the GPU while it runs, so the self-test would have tested the wrong
// device. An NPU computes in half precision only and must therefore be named. A device that is not
// there is a Failure (ANOCO_NO_BACKEND).
std::string pick_device(const std::string& wanted, const std::vector<std::string>& found);

}  // namespace anoco
