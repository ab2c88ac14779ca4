// Applies small rotations, shifts and changes of brightness to the only reference, as a fixture and
// a lamp would cause them, bit for bit as anoco_edge/teaching/provisional_threshold.py does.
#pragma once

#include <cstdint>
#include <vector>

namespace anoco {

constexpr int kJitterCount = 8;

// Returns variant `number` of width x height x 3 bytes of RGB.
std::vector<uint8_t> jittered(const uint8_t* rgb, int64_t width, int64_t height, int number);

}  // namespace anoco
