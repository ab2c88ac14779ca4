#include "gpu/patch_scorer.hpp"

#include <algorithm>
#include <cstring>

namespace anoco::gpu {
namespace {

constexpr size_t kMostGraphs = 8;

Operands other(Operands type) {
  return type == Operands::float16 ? Operands::float32 : Operands::float16;
}

void check_chosen(const anoco_device_patches& query) {
  if (query.chosen == nullptr) return;
  for (int64_t k = 0; k < query.chosen_count; ++k)
    if (query.chosen[k] < 0 || query.chosen[k] >= query.rows)
      fail(ANOCO_INVALID_ARGUMENT,
           "chosen row " + std::to_string(query.chosen[k]) + " of " + std::to_string(query.rows) +
               " does not exist",
           "rows count from 0");
}

}  // namespace

PatchScorer::Room::Room(const std::shared_ptr<const DeviceBank>& bank, const Settings& settings,
                        int64_t max_rows)
    : scorer(bank, settings, max_rows),
      raw(bank->device(), max_rows * bank->dim() * bytes_of(other(bank->patches().type))),
      query(bank->device(), max_rows * bank->dim() * bytes_of(bank->patches().type)),
      chosen(bank->device(), max_rows),
      host_query(bank->device(), std::max(raw.size(), query.size())),
      host_chosen(bank->device(), max_rows),
      energy(bank->device(), max_rows),
      similarity(bank->device(), max_rows),
      anchor(bank->device(), max_rows),
      neighbors(bank->device(), max_rows),
      bad(bank->device(), 1) {}

PatchScorer::PatchScorer(std::shared_ptr<const DeviceBank> bank, const Settings& settings,
                         int64_t max_rows)
    : bank_(std::move(bank)),
      settings_(settings),
      ready_(bank_->device(), kEventNoTiming),
      stream_(bank_->device()) {
  if (max_rows > 0) room_.emplace(bank_, settings_, max_rows);
}

void PatchScorer::reserve(int64_t rows) {
  if (room_ && rows <= room_->scorer.max_rows()) return;
  graphs_.clear();
  room_.reset();  // first, so that there is room for the larger one
  room_.emplace(bank_, settings_, rows);
}

void PatchScorer::score(const void* query, Operands type, int64_t rows, const Outputs& out) {
  const std::lock_guard<std::mutex> lock(one_at_a_time_);
  if (rows == 0) return;
  const Current current(*bank_->device());
  reserve(rows);
  std::memcpy(room_->host_query.data(), query, size_t(rows * bank_->dim() * bytes_of(type)));
  run(rows, type == Operands::float16 ? Source::host_float16 : Source::host_float32);
  if (const int64_t bad = bad_row(); bad >= 0)
    refuse_row("query patch " + std::to_string(bad),
               room_->host_query.data() + bad * bank_->dim() * bytes_of(type), type, bank_->dim());
  check_energies(room_->energy.data(), rows);
  give_here(out, rows);
}

void PatchScorer::score_device(const anoco_device_patches& query, const anoco_patch_scores& out) {
  const std::lock_guard<std::mutex> lock(one_at_a_time_);
  const Operands type = operands_of(query.type);
  const int64_t rows = query.chosen != nullptr ? query.chosen_count : query.rows;
  check_chosen(query);
  if (rows == 0) return;
  const Current current(*bank_->device());
  const Patches features{type, reachable(*bank_->device(), query.features, "features")};
  const anoco_patch_scores there = out.memory == ANOCO_DEVICE ? on_device(out) : out;
  reserve(rows);
  Tidy tidy(stream_);
  wait_for(static_cast<CUstream>(query.stream));
  fetch(query, features, rows);
  run(rows, Source::device);
  if (const int64_t bad = bad_row(); bad >= 0) {
    const int64_t row = query.chosen != nullptr ? query.chosen[bad] : bad;
    read_row(features, row);
    refuse_row("query patch " + std::to_string(row), room_->host_query.data(), type, bank_->dim());
  }
  check_energies(room_->energy.data(), rows);
  if (out.memory == ANOCO_HOST)
    give_here(out, rows);
  else
    give_there(there, rows);
  tidy.done();
}

anoco_patch_scores PatchScorer::on_device(const anoco_patch_scores& given) const {
  anoco_patch_scores out = given;
  const auto find = [&](auto*& pointer, const char* name) {
    if (pointer == nullptr) return;
    pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(
        reachable(*bank_->device(), pointer, name));
  };
  find(out.energy, "energy");
  find(out.anchor, "anchor");
  find(out.similarity, "similarity");
  find(out.neighbors, "neighbors");
  return out;
}

uint64_t PatchScorer::device_bytes() {
  const std::lock_guard<std::mutex> lock(one_at_a_time_);
  if (!room_) return 0;
  return uint64_t(room_->scorer.device_bytes()) + room_->raw.bytes() + room_->query.bytes() +
         room_->chosen.bytes();
}

// For the first time without a graph: cuBLAS loads what it needs then, which a capture forbids.
void PatchScorer::run(int64_t rows, Source source) {
  Tidy tidy(stream_);
  const Graph* known = find(rows, source);
  if (known != nullptr)
    known->launch(stream_.get());
  else
    enqueue(rows, source);
  stream_.wait();
  if (known == nullptr) {
    Graph made = Graph::capture(bank_->device(), stream_.get(), [&] { enqueue(rows, source); });
    if (graphs_.size() == kMostGraphs) graphs_.pop_back();
    graphs_.push_front({rows, source, std::move(made)});
  }
  tidy.done();
}

const Graph* PatchScorer::find(int64_t rows, Source source) {
  const auto known = std::find_if(graphs_.begin(), graphs_.end(), [&](const Recorded& recorded) {
    return recorded.rows == rows && recorded.source == source;
  });
  if (known == graphs_.end()) return nullptr;
  graphs_.splice(graphs_.begin(), graphs_, known);
  return &graphs_.front().graph;
}

void PatchScorer::enqueue(int64_t rows, Source source) {
  const CUstream stream = stream_.get();
  Room& room = *room_;
  if (source != Source::device) {
    const Operands type = source == Source::host_float16 ? Operands::float16 : Operands::float32;
    const int64_t numbers = rows * bank_->dim();
    const bool fits = type == scored().type;
    upload(room.host_query, fits ? room.query : room.raw, numbers * bytes_of(type), stream);
    if (!fits) convert(*bank_->device(), {type, room.raw.address()}, numbers, scored(), stream);
  }
  room.scorer.enqueue(scored(), rows, stream);
  download(room.scorer.bad(), room.bad, 1, stream);
  download(room.scorer.energy(), room.energy, rows, stream);
  download(room.scorer.anchor(), room.anchor, rows, stream);
  download(room.scorer.similarity(), room.similarity, rows, stream);
  download(room.scorer.neighbors(), room.neighbors, rows, stream);
}

void PatchScorer::wait_for(CUstream stream) {
  ready_.record(stream);
  driver().cuStreamWaitEvent(stream_.get(), ready_.get(), 0);
}

// The caller's patches to where graphs expect them: gathered, copied, converted.
void PatchScorer::fetch(const anoco_device_patches& query, Patches from, int64_t rows) {
  const CUstream stream = stream_.get();
  Room& room = *room_;
  const int64_t numbers = rows * bank_->dim();
  const bool fits = from.type == scored().type;
  if (query.chosen != nullptr) {
    std::copy_n(query.chosen, rows, room.host_chosen.data());
    upload(room.host_chosen, room.chosen, rows, stream);
    const Patches to{from.type, fits ? room.query.address() : room.raw.address()};
    gather(*bank_->device(), from, room.chosen.data(), rows, bank_->dim(), to, stream);
    from = to;
  } else if (fits) {
    driver().cuMemcpyDtoDAsync_v2(room.query.address(), from.address,
                                  size_t(numbers * bytes_of(from.type)), stream);
  }
  if (!fits) convert(*bank_->device(), from, numbers, scored(), stream);
}

int64_t PatchScorer::bad_row() const {
  return room_->bad[0] == ANOCO_GPU_NO_BAD_ROW ? -1 : room_->bad[0];
}

void PatchScorer::read_row(Patches all, int64_t row) {
  const uint8_t* from = reinterpret_cast<const uint8_t*>(all.from(row, bank_->dim()).address);
  download(from, room_->host_query, bank_->dim() * bytes_of(all.type), stream_.get());
  stream_.wait();
}

template <class Out>
void PatchScorer::give_here(const Out& out, int64_t rows) const {
  const auto copy = [&](const auto& from, auto* to) {
    if (to != nullptr) std::copy_n(from.data(), rows, to);
  };
  copy(room_->energy, out.energy);
  copy(room_->anchor, out.anchor);
  copy(room_->similarity, out.similarity);
  copy(room_->neighbors, out.neighbors);
}

void PatchScorer::give_there(const anoco_patch_scores& out, int64_t rows) const {
  const auto copy = [&](const void* from, void* to) {
    if (to != nullptr)
      driver().cuMemcpyDtoDAsync_v2(address_of(to), address_of(from), size_t(rows) * sizeof(float),
                                    stream_.get());
  };
  copy(room_->scorer.energy(), out.energy);
  copy(room_->scorer.anchor(), out.anchor);
  copy(room_->scorer.similarity(), out.similarity);
  copy(room_->scorer.neighbors(), out.neighbors);
  stream_.wait();
}

}  // namespace anoco::gpu
