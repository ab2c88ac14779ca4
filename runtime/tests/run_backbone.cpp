// Runs a backbone on pictures from standard input and writes their features to standard output,
// both as plain bytes: for tests/native/test_native_backend.py.
//
//   run_backbone GRAPH HEIGHT WIDTH PATCHES DIM DEVICE LIBRARY THREADS
//
// Ends with the status of what failed, whose text goes to standard error.
#include <signal.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "check.h"
#include "engine/engine.hpp"
#include "failure.hpp"

namespace {

stack_t signal_stack() {
  stack_t now{};
  CHECK(sigaltstack(nullptr, &now) == 0);
  return now;
}

void run(const anoco::EngineChoice& choice, const char* graph, const anoco::InputContract& input) {
  const stack_t before = signal_stack();
  const auto engine = std::make_shared<const anoco::Engine>(choice, graph, input);
  anoco::Request request(engine);
  // A signal must not run on a stack that goes away with one of the backend's plug-ins.
  CHECK(signal_stack().ss_sp == before.ss_sp && signal_stack().ss_flags == before.ss_flags);
  std::vector<uint8_t> pixels(size_t(input.height * input.width * 3));
  const size_t numbers = size_t(input.patches() * input.dim);
  while (std::fread(pixels.data(), 1, pixels.size(), stdin) == pixels.size())
    CHECK(std::fwrite(request.run(pixels.data()), sizeof(float), numbers, stdout) == numbers);
}

}  // namespace

int main(int count, char** words) {
  CHECK(count == 9);
  anoco::InputContract input;
  input.height = std::atoll(words[2]);
  input.width = std::atoll(words[3]);
  input.rows = std::atoll(words[4]);
  input.cols = 1;
  input.dim = std::atoll(words[5]);
  anoco::EngineChoice choice;
  choice.device = words[6];
  choice.library = words[7];
  choice.threads = uint32_t(std::atoi(words[8]));
  try {
    run(choice, words[1], input);
  } catch (const anoco::Failure& failure) {
    std::fprintf(stderr, "%s\n", failure.text.c_str());
    return failure.status;
  }
}
