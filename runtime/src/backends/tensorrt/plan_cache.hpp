// Plans that `anoco-edge build` made on this machine, in the user's cache: the same folder, records
// and rules as anoco_edge/plans/cache.py, which writes them. A plan is executable code: it is used
// only when nobody but its owner can have written it, and when its hash is the recorded one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "bundle/bytes.hpp"

namespace anoco {

// What a plan is bound to.
struct PlanFingerprint {
  std::string version;     // of TensorRT, "10.3.0" or "10.3.0.30"
  std::string gpu;         // its name
  std::string capability;  // "sm87"
  std::string driver;      // "cuda 12060 540.4.0"
};

struct PlanRecord {
  std::filesystem::path path;
  std::string sha256, built;
  int64_t size = 0, max_batch = 0;
};

// $XDG_CACHE_HOME/anoco-edge/plans, or below ~/.cache.
std::filesystem::path plans_folder();

// The kernel module's version as /proc/driver/nvidia/version has it; "" where there is none.
std::string kernel_driver_version();

// The plan of this graph that was built here, of several the one for the smallest batch (this
// runtime runs one picture at a time), then the newest; nothing where there is none. A plan's
// version is here.version or `full_version`: Python's packages leave the build number out, or keep
// it. Failure (ANOCO_BAD_BUNDLE) where a record could have been written by others.
std::optional<PlanRecord> find_plan(const std::filesystem::path& folder, const std::string& graph,
                                    const PlanFingerprint& this_device,
                                    const std::string& full_version);

// Its content, owner and hash checked. Else: ANOCO_BAD_BUNDLE.
Bytes read_plan(const PlanRecord& record);

}  // namespace anoco
