// The execution provider for an NVIDIA device.
#pragma once

#include "detector/execution_provider.hpp"

namespace anoco::gpu {

// Fails with ANOCO_NO_BACKEND; an engine on another device is ANOCO_INVALID_ARGUMENT.
std::unique_ptr<const ExecutionProvider> open_execution_provider(
    std::shared_ptr<const Engine> engine, const ExecutionOptions& choice);

}  // namespace anoco::gpu
