// One list serves both to count memory and to allocate it.
//
// A class that takes memory names its buffers, and its parts that take memory themselves, in one
// function template:
//
//   template <class Each>
//   static void each_buffer(const InputContract& input, Each&& each) {
//     each(&Finder::seeds_, input.patches());  // a buffer, and how many numbers it holds
//     each.part(&Finder::outline_, input);     // a part, and what its constructor takes
//   }
//
// Its constructor calls this template with a BufferAllocator, and its static function bytes() with
// a ByteCounter, so the number of bytes is always that of the buffers. A part has a static bytes()
// with the same parameters as its constructor.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "buffer.hpp"

namespace anoco {

class ByteCounter {
 public:
  template <class Owner, template <class> class Memory, class T>
  void operator()(Memory<T> Owner::*, int64_t count) {
    bytes_ += count * int64_t(sizeof(T));
  }
  template <class Owner, class Part, class... Arguments>
  void part(Part Owner::*, const Arguments&... arguments) {
    bytes_ += Part::bytes(arguments...);
  }
  template <class Owner, class Part, class... Arguments>
  void part(std::optional<Part> Owner::*, const Arguments&... arguments) {
    bytes_ += Part::bytes(arguments...);
  }
  int64_t bytes() const { return bytes_; }

 private:
  int64_t bytes_ = 0;
};

// Returns the bytes of the list that `list(each)` goes through.
template <class List>
int64_t count_bytes(List&& list) {
  ByteCounter counter;
  list(counter);
  return counter.bytes();
}

template <class Owner>
class BufferAllocator {
 public:
  explicit BufferAllocator(Owner& owner) : owner_(owner) {}

  template <class T>
  void operator()(Buffer<T> Owner::*buffer, int64_t count) {
    if (count > 0) owner_.*buffer = Buffer<T>(count);
  }
  template <class Part, class... Arguments>
  void part(Part Owner::*part, const Arguments&... arguments) {
    owner_.*part = Part(arguments...);
  }
  // Makes a part that is optional or cannot be moved.
  template <class Part, class... Arguments>
  void part(std::optional<Part> Owner::*part, const Arguments&... arguments) {
    (owner_.*part).emplace(arguments...);
  }

 private:
  Owner& owner_;
};

}  // namespace anoco
