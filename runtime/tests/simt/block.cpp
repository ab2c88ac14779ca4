// Each thread runs until it ends or has to wait for others; then the next one runs. If none can run
// and some have not ended, the kernel is wrong.
//
// ThreadSanitizer does not see this file: what it keeps is used by all threads of a block in turn.
// It is told what orders the threads of a kernel: the start and the end of a block, and its
// barriers, but not the shuffles and votes of a warp.
#include "block.hpp"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>

#include "fiber.hpp"

simt::Place threadIdx, blockIdx, blockDim, gridDim;

namespace simt {
namespace {

enum class State { fresh, ready, waiting, ended };

struct Fiber {
  Context context;
  int thread = -1;
};

struct Thread {
  State state = State::fresh;
  Fiber* fiber = nullptr;
  const char* what = "";  // what it waits at
  int line = 0;
};

// A meeting of threads. The values of the last meeting stay until the next is complete; by then all
// threads have read them.
struct Meeting {
  const char* what = "";
  int line = 0;
  unsigned mask = 0, came = 0, number = 0;
  uint64_t values[2][kWarp];
};

struct BlockMeeting {
  const char* what = "";
  int line = 0, came = 0, votes = 0;
  int result[2];
  unsigned number = 0;
};

const Work* work;
int thread_count, running;
unsigned blocks_run;
Thread threads[kMostThreads];
Meeting warps[kMostThreads / kWarp];
BlockMeeting all;
char started, ended, passed[2];  // addresses that are released and acquired
Context scheduler;
std::vector<std::unique_ptr<Fiber>> fibers;
std::vector<Fiber*> idle;

[[noreturn]] void die(const char* why) {
  std::fprintf(stderr, "simt: %s, block (%u, %u), thread %d: %s\n", work->kernel->name, blockIdx.x,
               blockIdx.y, running, why);
  std::abort();
}

[[noreturn]] void die_stuck() {
  int ended = 0;
  for (int t = 0; t < thread_count; ++t) ended += threads[t].state == State::ended;
  for (int t = 0; t < thread_count; ++t)
    if (threads[t].state == State::waiting) {
      running = t;
      char why[200];
      std::snprintf(why, sizeof why,
                    "waits at %s (line %d) for threads that never come; %d of %d have ended",
                    threads[t].what, threads[t].line, ended, thread_count);
      die(why);
    }
  std::abort();
}

void wait(const char* what, int line) {
  Thread& self = threads[running];
  self.state = State::waiting;
  self.what = what;
  self.line = line;
  switch_fiber(self.fiber->context, scheduler);
}

void wake(int thread) {
  if (threads[thread].state == State::waiting) threads[thread].state = State::ready;
}

void fiber_main() {
  fiber_entered();
  Fiber* self = threads[running].fiber;
  for (;;) {
    acquire(&started);
    work->kernel->call(work->values);
    release(&ended);
    threads[self->thread].state = State::ended;
    idle.push_back(self);
    switch_fiber(self->context, scheduler);
  }
}

Fiber* idle_fiber() {
  if (idle.empty()) {
    idle.reserve(kMostThreads);  // fibers give themselves back and must not allocate
    fibers.push_back(std::make_unique<Fiber>());
    fibers.back()->context = make_fiber(fiber_main);
    idle.push_back(fibers.back().get());
  }
  Fiber* fiber = idle.back();
  idle.pop_back();
  return fiber;
}

void resume(int t) {
  Thread& thread = threads[t];
  if (thread.state == State::fresh) {
    thread.fiber = idle_fiber();
    thread.fiber->thread = t;
  }
  thread.state = State::ready;
  running = t;
  threadIdx = {unsigned(t) % work->block.x, unsigned(t) / work->block.x % work->block.y,
               unsigned(t) / (work->block.x * work->block.y)};
  switch_fiber(scheduler, thread.fiber->context);
}

// The order in which threads are tried.
void arrange(std::vector<int>& order) {
  static std::mt19937 generator(1);
  order.resize(size_t(thread_count));
  for (int t = 0; t < thread_count; ++t)
    order[size_t(t)] = work->order == Order::backward ? thread_count - 1 - t : t;
  if (work->order == Order::shuffled) std::shuffle(order.begin(), order.end(), generator);
}

// A warp runs until all of its lanes wait for others, because its lanes meet often.
bool run_some(const std::vector<int>& order) {
  bool any = false;
  for (size_t first = 0; first < order.size(); first += kWarp) {
    const size_t end = std::min(first + kWarp, order.size());
    for (bool again = true; again;) {
      again = false;
      for (size_t k = first; k < end; ++k) {
        const State state = threads[order[k]].state;
        if (state != State::fresh && state != State::ready) continue;
        resume(order[k]);
        again = any = true;
      }
    }
  }
  return any;
}

// The lanes that exist in this warp.
unsigned lanes_of(int warp) {
  const int lanes = std::min(thread_count - warp * kWarp, kWarp);
  return lanes == kWarp ? 0xffffffffu : (1u << lanes) - 1;
}

}  // namespace

int lane() { return running % kWarp; }
int thread() { return running; }
unsigned block_number() { return blocks_run; }

const uint64_t* meet(const char* what, unsigned mask, uint64_t value, int line) {
  const int warp = running / kWarp;
  Meeting& meeting = warps[warp];
  if ((mask >> lane() & 1u) == 0) die("the mask of a meeting of lanes does not name its own lane");
  if ((mask & ~lanes_of(warp)) != 0) die("the mask of a meeting names lanes that do not exist");
  if (meeting.came == 0) {
    meeting.what = what;
    meeting.line = line;
    meeting.mask = mask;
  } else if (meeting.mask != mask || meeting.line != line || meeting.what != what) {
    die("lanes of one warp meet in different places or with different masks");
  }
  uint64_t* values = meeting.values[meeting.number % 2];
  values[lane()] = value;
  meeting.came |= 1u << lane();
  if (meeting.came != mask) {
    wait(what, line);
    return values;
  }
  meeting.came = 0;
  ++meeting.number;
  for (int k = 0; k < kWarp; ++k)
    if ((mask >> k & 1u) != 0) wake(warp * kWarp + k);
  return values;
}

int meet_block(const char* what, bool vote, int line) {
  if (all.came == 0) {
    all.what = what;
    all.line = line;
    all.votes = 0;
  } else if (all.line != line || all.what != what) {
    die("threads of one block meet at different barriers");
  }
  all.votes += vote;
  int& result = all.result[all.number % 2];
  // Two addresses in turn: threads that are at the next barrier already tell nothing to this one.
  char* const here = &passed[all.number % 2];
  release(here);
  if (++all.came < thread_count) {
    wait(what, line);
    acquire(here);
    return result;
  }
  acquire(here);
  result = all.votes;
  all.came = 0;
  ++all.number;
  // No lane can be waiting for its warp here, because all threads have arrived.
  for (int t = 0; t < thread_count; ++t) wake(t);
  return result;
}

void run_block(const Work& given) {
  static std::vector<int> order;
  work = &given;
  ++blocks_run;
  thread_count = int(given.block.x * given.block.y * given.block.z);
  scheduler = this_thread();
  arrange(order);
  for (int t = 0; t < thread_count; ++t) threads[t] = Thread{};
  for (Meeting& meeting : warps) meeting.came = 0;
  all.came = 0;
  release(&started);
  while (run_some(order)) {
  }
  acquire(&ended);
  for (int t = 0; t < thread_count; ++t)
    if (threads[t].state != State::ended) die_stuck();
}

}  // namespace simt
