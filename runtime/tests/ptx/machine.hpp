// For tests: runs a few lines of PTX and returns what they wrote.
#pragma once

#include <functional>

#include "ptx.hpp"
#include "tests/check.h"

namespace ptx {

using Words = std::vector<uint32_t>;

// The lines stand in a kernel that has registers %p, %h (16 bits), %r, %rd, %f and %d; %r0 is the
// thread, %rd0 and %rd1 are the addresses of `out` and `in`, %rd2 and %rd3 those of the thread's
// own word in them.
inline std::string kernel_of(const std::string& lines, const std::string& declarations = "") {
  return ".version 8.5\n.target sm_90\n.address_size 64\n" + declarations +
         ".visible .entry test(.param .u64 out, .param .u64 in)\n{\n"
         ".reg .pred %p<16>;\n.reg .b16 %h<16>;\n.reg .b32 %r<64>;\n.reg .b64 %rd<32>;\n"
         ".reg .f32 %f<32>;\n.reg .f64 %d<16>;\n"
         "ld.param.u64 %rd0, [out];\nld.param.u64 %rd1, [in];\nmov.u32 %r0, %tid.x;\n"
         "mad.wide.u32 %rd2, %r0, 4, %rd0;\nmad.wide.u32 %rd3, %r0, 4, %rd1;\n" +
         lines + "\nret;\n}\n";
}

struct Shape {
  unsigned blocks = 1, threads = 32;
  size_t shared = 0;
};

struct Ran {
  Words out;
  Counters counters;
};

inline Ran run(const std::string& text, const Words& in, size_t words, Shape shape = {},
               const Options& options = {}) {
  const Module module(text, "test.ptx");
  // Room behind both, so that what lies outside of one is not inside of the other: the allocator of
  // ThreadSanitizer puts them side by side.
  const size_t gap = 16;
  Ran ran;
  ran.out.reserve(words + gap);
  ran.out.assign(words, 0xdeadbeefu);
  Words given;
  given.reserve(in.size() + gap);
  given = in;
  Memory memory;
  memory.add(ran.out.data(), 4 * words);
  memory.add(given.data(), 4 * given.size());
  const void* places[] = {ran.out.data(), given.data()};
  void* const values[] = {&places[0], &places[1]};
  CHECK(module.find("test") != nullptr && module.find("other") == nullptr);
  ran.counters = launch(*module.find("test"), {shape.blocks}, {shape.threads}, shape.shared, values,
                        memory, options);
  return ran;
}

inline Words run_lines(const std::string& lines, const Words& in = {0}, size_t words = 32) {
  return run(kernel_of(lines), in, words).out;
}

// Runs it in several orders, each of which must throw a Fault that says this.
inline void faults(const std::string& text, const char* message, Shape shape = {},
                   const Words& in = Words(64, 1)) {
  for (uint64_t seed = 1; seed < 6; ++seed) {
    Options options;
    options.seed = seed;
    std::string said = "nothing";
    try {
      run(text, in, 64, shape, options);
    } catch (const Fault& fault) {
      said = fault.what();
    }
    if (said.find(message) == std::string::npos)
      std::fprintf(stderr, "expected: %s\nsaid: %s\n", message, said.c_str());
    CHECK(said.find(message) != std::string::npos);
  }
}

inline void runs_well(const std::string& text, Shape shape = {}, const Words& in = Words(64, 1)) {
  for (uint64_t seed = 1; seed < 6; ++seed) {
    Options options;
    options.seed = seed;
    run(text, in, 64, shape, options);
  }
}

}  // namespace ptx
