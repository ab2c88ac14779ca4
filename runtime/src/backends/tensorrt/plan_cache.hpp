// Finds the plans that `anoco-edge build` made on this machine, in the user's cache. It uses the
// same folder, records and rules as anoco_edge/plans/cache.py, which writes them. A plan is
// executable code, so it is used only when nobody but its owner can have written it and when its
// hash is the recorded one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "bundle/bytes.hpp"

namespace anoco {

// Describes the device and the software that a plan was built for.
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

// Returns the kernel module's version from /proc/driver/nvidia/version, or "" where there is none.
std::string kernel_driver_version();

// Returns the plan of this graph that was built on this device. Of several plans it prefers the one
// for the smallest batch, because this runtime runs one picture at a time, and then the newest.
// Returns nothing where there is none. A plan matches this_device.version or `full_version`,
// because some Python packages leave the build number out. A record that others could have written
// is a Failure (ANOCO_BAD_BUNDLE).
std::optional<PlanRecord> find_plan(const std::filesystem::path& folder, const std::string& graph,
                                    const PlanFingerprint& this_device,
                                    const std::string& full_version);

// Reads a plan after checking its owner and its hash. A plan that fails a check is a Failure
// (ANOCO_BAD_BUNDLE).
Bytes read_plan(const PlanRecord& record);

}  // namespace anoco
