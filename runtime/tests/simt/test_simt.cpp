// Tests the emulation itself: what a correct kernel may rely on, and that incorrect ones are found.
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "cuda_on_cpu.hpp"
//
#include "run.hpp"

namespace {

constexpr unsigned kAll = 0xffffffffu;

int results[ANOCO_GPU_BLOCK];

void talk(void* const*) {
  __shared__ int numbers[ANOCO_GPU_BLOCK];
  const int t = int(threadIdx.x + threadIdx.y * blockDim.x);
  numbers[t] = t * t;
  __syncthreads();
  int sum = numbers[ANOCO_GPU_BLOCK - 1 - t];  // another thread's
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(kAll, sum, step);
  const unsigned votes = __ballot_sync(kAll, t % 3 == 0);
  const int third = __syncthreads_count(t % 3 == 0);
  results[t] = sum + int(votes % 1024) + third;
}

void answer_is_right() {
  for (int t = 0; t < ANOCO_GPU_BLOCK; ++t) {
    const int warp = t / 32 * 32;
    unsigned sum = 0, votes = 0;
    for (int k = warp; k < warp + 32; ++k) {
      sum += unsigned((ANOCO_GPU_BLOCK - 1 - k) * (ANOCO_GPU_BLOCK - 1 - k));
      votes |= unsigned(k % 3 == 0) << (k - warp);
    }
    CHECK(results[t] == int(sum + votes % 1024 + 86));
  }
}

void run(void (*call)(void* const*), simt::Size block = {ANOCO_GPU_BLOCK}) {
  simt::launch({"wrong", {}, call}, {2, 3}, block, 0, nullptr);
}

void right_kernels() {
  using simt::Order;
  for (const Order order : {Order::forward, Order::backward, Order::shuffled})
    for (const simt::Size block : {simt::Size{256}, simt::Size{16, 16}}) {
      simt::run_threads(order);
      std::fill_n(results, ANOCO_GPU_BLOCK, -1);
      run(talk, block);
      answer_is_right();
    }
  simt::run_threads(Order::forward);
  CHECK(simt::find("anoco_candidates") != nullptr && simt::find("anoco_nothing") == nullptr);
  CHECK(simt::find("anoco_walk_f16")->parameters.size() == 23);
}

// Shared memory is not zero to begin with.
void shared_memory_is_not_empty() {
#ifndef __SANITIZE_ADDRESS__
  run([](void* const*) {
    __shared__ int number;
    if (blockIdx.x == 0 || threadIdx.x != 0) return;
    results[0] = number;
  });
  CHECK(results[0] == -1);
#endif
}

void some_skip_a_barrier(void* const*) {
  if (threadIdx.x < 100) __syncthreads();
}

void two_barriers(void* const*) {
  if (threadIdx.x < 100)
    __syncthreads();
  else
    __syncthreads_count(1);
}

void some_skip_a_shuffle(void* const*) {
  if (threadIdx.x % 32 < 20) __shfl_xor_sync(kAll, 1, 1);
}

void a_stranger_shuffles(void* const*) { __shfl_xor_sync(0xffffu, 1, 1); }

void masks_differ(void* const*) { __ballot_sync(threadIdx.x % 2 != 0 ? kAll : 0x55555555u, 1); }

void shuffle_and_barrier(void* const*) {
  if (threadIdx.x % 32 == 0)
    __syncthreads();
  else
    __ballot_sync(kAll, 1);
}

// Runs it in another process, which must be ended by that message.
void dies(void (*call)(void* const*), const char* message, simt::Size block = {ANOCO_GPU_BLOCK}) {
  int ends[2];
  CHECK(pipe(ends) == 0);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    run(call, block);
    _exit(0);
  }
  close(ends[1]);
  std::string said;
  char part[256];
  for (ssize_t got; (got = read(ends[0], part, sizeof part)) > 0;) said.append(part, size_t(got));
  close(ends[0]);
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
  if (said.find(message) == std::string::npos) std::fprintf(stderr, "%s", said.c_str());
  CHECK(said.find(message) != std::string::npos);
}

void wrong_kernels() {
  dies(some_skip_a_barrier, "waits at __syncthreads");
  dies(some_skip_a_barrier, "156 of 256 have ended");
  dies(two_barriers, "meet at different barriers");
  dies(some_skip_a_shuffle, "waits at __shfl_xor_sync");
  dies(a_stranger_shuffles, "does not name its own lane");
  dies(masks_differ, "with different masks");
  dies(shuffle_and_barrier, "for threads that never come; 0 of 256 have ended");
  dies(talk, "cannot run as 2x3x1 blocks of 128x1x1", {128});
}

}  // namespace

int main() {
  right_kernels();
  shared_memory_is_not_empty();
  wrong_kernels();
  return 0;
}
