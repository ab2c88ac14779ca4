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

PatchScorer::Buffers::Buffers(const std::shared_ptr<const DeviceBank>& bank,
                              const Settings& settings, int64_t max_rows)
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
      graph_maker_(bank_->device(), graph_counts_),
      ready_(bank_->device(), kEventNoTiming),
      stream_(bank_->device()) {
  if (max_rows > 0) buffers_.emplace(bank_, settings_, max_rows);
}

void PatchScorer::reserve(int64_t rows) {
  if (buffers_ && rows <= buffers_->scorer.max_rows()) return;
  work_.clear();
  buffers_.reset();  // first, so that there is memory for the larger one
  buffers_.emplace(bank_, settings_, rows);
}

void PatchScorer::score(const void* query, Operands type, int64_t rows, const Outputs& out) {
  const std::lock_guard<std::mutex> lock(one_at_a_time_);
  if (rows == 0) return;
  const CurrentDevice current(*bank_->device());
  reserve(rows);
  std::memcpy(buffers_->host_query.data(), query, size_t(rows * bank_->dim() * bytes_of(type)));
  run(rows, type == Operands::float16 ? Source::host_float16 : Source::host_float32);
  if (const int64_t bad = bad_row(); bad >= 0)
    refuse_row("query patch " + std::to_string(bad),
               buffers_->host_query.data() + bad * bank_->dim() * bytes_of(type), type,
               bank_->dim());
  check_energies(buffers_->energy.data(), rows);
  copy_to_host(out, rows);
}

void PatchScorer::score_device(const anoco_device_patches& query, const anoco_patch_scores& out) {
  const std::lock_guard<std::mutex> lock(one_at_a_time_);
  const Operands type = operands_of(query.type);
  const int64_t rows = query.chosen != nullptr ? query.chosen_count : query.rows;
  check_chosen(query);
  if (rows == 0) return;
  const CurrentDevice current(*bank_->device());
  const Patches features{type, reachable(*bank_->device(), query.features, "features")};
  const anoco_patch_scores device_out = out.memory == ANOCO_DEVICE ? on_device(out) : out;
  reserve(rows);
  StreamGuard guard(stream_);
  wait_for(static_cast<CUstream>(query.stream));
  fetch(query, features, rows);
  run(rows, Source::device);
  if (const int64_t bad = bad_row(); bad >= 0) {
    const int64_t row = query.chosen != nullptr ? query.chosen[bad] : bad;
    read_row(features, row);
    refuse_row("query patch " + std::to_string(row), buffers_->host_query.data(), type,
               bank_->dim());
  }
  check_energies(buffers_->energy.data(), rows);
  if (out.memory == ANOCO_HOST)
    copy_to_host(out, rows);
  else
    copy_to_device(device_out, rows);
  guard.dismiss();
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
  if (!buffers_) return 0;
  return uint64_t(buffers_->scorer.device_bytes()) + buffers_->raw.bytes() +
         buffers_->query.bytes() + buffers_->chosen.bytes();
}

GraphCounts PatchScorer::graphs() {
  const std::lock_guard<std::mutex> lock(one_at_a_time_);
  return graph_counts_;
}

void PatchScorer::run(int64_t rows, Source source) {
  StreamGuard guard(stream_);
  find(rows, source).run(graph_maker_, stream_, [&] { enqueue(rows, source); });
  stream_.wait();
  guard.dismiss();
}

RepeatedWork& PatchScorer::find(int64_t rows, Source source) {
  const auto known = std::find_if(work_.begin(), work_.end(), [&](const CachedWork& cached) {
    return cached.rows == rows && cached.source == source;
  });
  if (known != work_.end()) {
    work_.splice(work_.begin(), work_, known);
  } else {
    if (work_.size() == kMostGraphs) work_.pop_back();
    work_.push_front({rows, source, {}});
  }
  return work_.front().work;
}

void PatchScorer::enqueue(int64_t rows, Source source) {
  const CUstream stream = stream_.get();
  Buffers& buffers = *buffers_;
  if (source != Source::device) {
    const Operands type = source == Source::host_float16 ? Operands::float16 : Operands::float32;
    const int64_t numbers = rows * bank_->dim();
    const bool fits = type == operands().type;
    upload(buffers.host_query, fits ? buffers.query : buffers.raw, numbers * bytes_of(type),
           stream);
    if (!fits)
      convert(*bank_->device(), {type, buffers.raw.address()}, numbers, operands(), stream);
  }
  buffers.scorer.enqueue(operands(), rows, stream);
  download(buffers.scorer.bad(), buffers.bad, 1, stream);
  download(buffers.scorer.energy(), buffers.energy, rows, stream);
  download(buffers.scorer.anchor(), buffers.anchor, rows, stream);
  download(buffers.scorer.similarity(), buffers.similarity, rows, stream);
  download(buffers.scorer.neighbors(), buffers.neighbors, rows, stream);
}

void PatchScorer::wait_for(CUstream stream) {
  ready_.record(stream);
  driver().cuStreamWaitEvent(stream_.get(), ready_.get(), 0);
}

// Brings the caller's patches to where the graphs read them: gathers, copies and converts them.
void PatchScorer::fetch(const anoco_device_patches& query, Patches from, int64_t rows) {
  const CUstream stream = stream_.get();
  Buffers& buffers = *buffers_;
  const int64_t numbers = rows * bank_->dim();
  const bool fits = from.type == operands().type;
  if (query.chosen != nullptr) {
    std::copy_n(query.chosen, rows, buffers.host_chosen.data());
    upload(buffers.host_chosen, buffers.chosen, rows, stream);
    const Patches to{from.type, fits ? buffers.query.address() : buffers.raw.address()};
    gather(*bank_->device(), from, buffers.chosen.data(), rows, bank_->dim(), to, stream);
    from = to;
  } else if (fits) {
    driver().cuMemcpyDtoDAsync_v2(buffers.query.address(), from.address,
                                  size_t(numbers * bytes_of(from.type)), stream);
  }
  if (!fits) convert(*bank_->device(), from, numbers, operands(), stream);
}

int64_t PatchScorer::bad_row() const {
  return buffers_->bad[0] == ANOCO_GPU_NO_BAD_ROW ? -1 : buffers_->bad[0];
}

void PatchScorer::read_row(Patches all, int64_t row) {
  const uint8_t* from = reinterpret_cast<const uint8_t*>(all.from(row, bank_->dim()).address);
  download(from, buffers_->host_query, bank_->dim() * bytes_of(all.type), stream_.get());
  stream_.wait();
}

template <class Out>
void PatchScorer::copy_to_host(const Out& out, int64_t rows) const {
  const auto copy = [&](const auto& from, auto* to) {
    if (to != nullptr) std::copy_n(from.data(), rows, to);
  };
  copy(buffers_->energy, out.energy);
  copy(buffers_->anchor, out.anchor);
  copy(buffers_->similarity, out.similarity);
  copy(buffers_->neighbors, out.neighbors);
}

void PatchScorer::copy_to_device(const anoco_patch_scores& out, int64_t rows) const {
  const auto copy = [&](const void* from, void* to) {
    if (to != nullptr)
      driver().cuMemcpyDtoDAsync_v2(address_of(to), address_of(from), size_t(rows) * sizeof(float),
                                    stream_.get());
  };
  copy(buffers_->scorer.energy(), out.energy);
  copy(buffers_->scorer.anchor(), out.anchor);
  copy(buffers_->scorer.similarity(), out.similarity);
  copy(buffers_->scorer.neighbors(), out.neighbors);
  stream_.wait();
}

}  // namespace anoco::gpu
