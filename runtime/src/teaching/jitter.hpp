// Small turns, shifts and changes of light of the only reference, as a fixture and a lamp would
// cause them: anoco_edge/threshold.py's gentle_views, bit for bit.
#pragma once

#include <cstdint>
#include <vector>

namespace anoco {

constexpr int kJitterCount = 8;

// View `number` of width x height x 3 bytes of RGB.
std::vector<uint8_t> jittered(const uint8_t* rgb, int64_t width, int64_t height, int number);

}  // namespace anoco
