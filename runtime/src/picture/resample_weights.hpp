// The weights of one axis of a resize by Pillow's antialiased bilinear filter.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "buffer_list.hpp"

namespace anoco {

// Fractional bits of Pillow's fixed-point weights.
constexpr int kWeightBits = 22;

inline void set_weight(double value, double& weight) { weight = value; }
inline void set_weight(double value, int32_t& weight) {
  weight = int32_t(0.5 + value * (1 << kWeightBits));
}

// Weight is int32_t for bytes and double for floats. Every output is the sum of `reach` inputs,
// some of which have weight 0, because loops of one length are faster than short loops of different
// lengths.
template <class Weight>
class ResampleWeights {
 public:
  // Takes memory for every resize from at most `inputs` to at most `outputs`.
  ResampleWeights() = default;
  ResampleWeights(int64_t inputs, int64_t outputs) {
    each_buffer(inputs, outputs, BufferAllocator{*this});
  }

  static int64_t bytes(int64_t inputs, int64_t outputs) {
    return count_bytes([&](auto& each) { each_buffer(inputs, outputs, each); });
  }

  // Returns the largest reach if there are `scale` inputs per output.
  static int64_t longest(double scale) { return 2 * int64_t(std::ceil(std::max(scale, 1.0))) + 1; }

  // Computes the weights, unless the sizes are those of the last call.
  void set(int64_t inputs, int64_t outputs) {
    if (inputs == inputs_ && outputs == outputs_) return;
    inputs_ = inputs;
    outputs_ = outputs;
    reach_ = 0;
    for (int64_t i = 0; i < outputs; ++i) reach_ = std::max(reach_, end_of(i) - first_of(i));
    for (int64_t i = 0; i < outputs; ++i) set_output(i);
  }

  int64_t outputs() const { return outputs_; }
  int64_t reach() const { return reach_; }
  int64_t first(int64_t output) const { return first_[output]; }
  const Weight* weights(int64_t output) const { return weights_.data() + output * reach_; }

  // The first inputs of all outputs, one after the other.
  const int32_t* firsts() const { return first_.data(); }
  static int64_t most_weights(int64_t inputs, int64_t outputs) { return most(inputs, outputs); }

 private:
  // The one list of its memory, see buffer_list.hpp.
  template <class Each>
  static void each_buffer(int64_t inputs, int64_t outputs, Each&& each) {
    each(&ResampleWeights::weights_, most(inputs, outputs));
    each(&ResampleWeights::first_, outputs);
  }

  // Returns outputs * longest(inputs / outputs), rounded up, which is enough for all smaller sizes
  // too.
  static int64_t most(int64_t inputs, int64_t outputs) { return 2 * inputs + 3 * outputs; }

  double scale() const { return double(inputs_) / double(outputs_); }
  double support() const { return std::max(scale(), 1.0); }
  double center(int64_t output) const { return (double(output) + 0.5) * scale(); }
  int64_t first_of(int64_t output) const {
    return std::max<int64_t>(0, int64_t(center(output) - support() + 0.5));
  }
  int64_t end_of(int64_t output) const {
    return std::min(inputs_, int64_t(center(output) + support() + 0.5));
  }

  void set_output(int64_t output) {
    const int64_t first = first_of(output), end = end_of(output);
    const double narrow = 1 / support(), middle = center(output);
    // The weights are computed twice instead of stored: the bits are the same, and no memory is
    // needed.
    const auto weight = [&](int64_t i) {
      return std::max(0.0, 1 - std::fabs((double(i) - middle + 0.5) * narrow));
    };
    double sum = 0;
    for (int64_t i = first; i < end; ++i) sum += weight(i);
    const int64_t shown = std::min(first, inputs_ - reach_);
    Weight* out = weights_.data() + output * reach_;
    std::fill_n(out, reach_, Weight{0});
    for (int64_t i = first; i < end; ++i) set_weight(weight(i) / sum, out[i - shown]);
    first_[output] = int32_t(shown);
  }

  int64_t inputs_ = 0, outputs_ = 0, reach_ = 0;
  Buffer<Weight> weights_;
  Buffer<int32_t> first_;
};

}  // namespace anoco
