// The part of the self-test that concerns a device: it checks that the way that pictures take there
// gives what the host gives. The engine alone is checked by detector/selftest.hpp.
#pragma once

#include "bundle/bundle.hpp"
#include "detector/execution_provider.hpp"
#include "gpu/product_path.hpp"

namespace anoco::gpu {

// Runs with the picture and the features that are stored in the bundle:
// - preprocessing on the device gives the bytes of the host, for RGB and for NV12;
// - the engine gives the same bits as a captured graph and without it, if it runs on the device;
// - scoring gives the CPU's energies, and the same bits as a captured graph and without it, with
//   cuBLAS, if it is there, and without.
// Fails with ANOCO_PARITY and says which of them is wrong. Logs what it found.
void check_device_path(const SharedDevice& device, const Bundle& bundle,
                       std::shared_ptr<const Engine> engine, Factors factors, const Log& log);

}  // namespace anoco::gpu
