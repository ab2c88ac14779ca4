// Which of this machine's devices a name means.
#pragma once

#include <string>
#include <vector>

#include "backends/openvino/library.hpp"

namespace anoco {

std::vector<std::string> found_devices(const OpenVino& ov, const ov_core_t* core);

// AUTO is a GPU if there is one, else the processor. OpenVINO's own AUTO starts on the processor
// and changes over while it runs: the self-test would have tested the wrong one. An NPU computes in
// half precision only, so it must be named. Not there: ANOCO_NO_BACKEND.
std::string pick_device(const std::string& wanted, const std::vector<std::string>& found);

}  // namespace anoco
