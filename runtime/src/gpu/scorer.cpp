#include "gpu/scorer.hpp"

#include <algorithm>

namespace anoco::gpu {
namespace {

// The least workspace with which all functions of cuBLAS work.
constexpr int64_t kLeastWorkspace = 64 << 10;

// If the Gram matrix is kept, there must be memory left for tiles of this height, which keep the
// device busy.
constexpr int64_t kLeastTile = 128;

// Tiles are whole blocks of a product where they are that high, so that no block computes rows that
// nobody asked for; lower ones are rounded to the rows that tensor cores take together.
constexpr int64_t kBlock = ANOCO_GPU_PRODUCT_TILE, kRounded = 16;

int64_t whole_blocks(int64_t rows) {
  const int64_t unit = rows >= kBlock ? kBlock : rows >= kRounded ? kRounded : 1;
  return rows / unit * unit;
}

}  // namespace

int64_t default_memory(const Device& device) {
  return int64_t(describe_device(device.ordinal()).memory / 16);
}

int64_t recommended_workspace(int capability) {
  if (capability < 90) return 4 << 20;
  return capability < 120 ? 32 << 20 : 12 << 20;
}

TileLayout::TileLayout(const BankShape& bank, int64_t max_rows, int64_t memory)
    : workspace(
          bank.path == ProductPath::cublas
              ? std::clamp(memory / 8, kLeastWorkspace, recommended_workspace(bank.capability))
              : 0) {
  const auto tile = [&](int64_t rows, int64_t dense) {
    return DeviceScorer::tile_bytes(bank, gram, rows, dense);
  };
  const int64_t room = memory - workspace, least = std::min(kLeastTile, max_rows);
  gram = DeviceScorer::tile_bytes(bank, true, least, least) <= room;
  const bool kept = gpu::keeps_products(bank.path, bank.factors);
  const int64_t fixed = tile(0, 0), dense = tile(0, 1) - fixed;
  const int64_t row = tile(1, 0) - fixed + (kept ? dense : 0);
  // At first there is room for `least` dense rows, or half of the memory, and for one in any case.
  const int64_t reserved = kept ? 0 : std::max(std::min(least * dense, (room - fixed) / 2), dense);
  const int64_t fit = (room - fixed - reserved) / row;
  most_rows = std::min(max_rows, std::max<int64_t>(whole_blocks(fit), 1));
  dense_rows =
      kept ? most_rows : std::clamp<int64_t>((room - tile(most_rows, 0)) / dense, 1, most_rows);
  bytes = workspace + tile(most_rows, dense_rows);
}

int64_t TileLayout::height(int64_t rows) const {
  const int64_t tiles = (rows + most_rows - 1) / most_rows;
  const int64_t even = (rows + tiles - 1) / tiles;
  const int64_t unit = even > kBlock ? kBlock : kRounded;
  return std::min((even + unit - 1) / unit * unit, most_rows);
}

Multiplier::Multiplier(SharedDevice device, int64_t workspace, Factors factors)
    : device_(std::move(device)), workspace_(device_, workspace), factors_(factors) {
  const DeviceChange change;
  const CurrentDevice current(*device_);
  blas_ = &create_cublas_handle(&handle_);
  // TF32 and half-precision sums stay off, because they change which references are neighbors.
  const int code = blas_->cublasSetMathMode.unchecked(
      handle_, factors == Factors::plain_float32 ? kMathPedantic : kMathFullSums);
  if (code == 0) return;
  blas_->cublasDestroy_v2.unchecked(handle_);
  fail_cublas_call(blas_->cublasSetMathMode.name(), code);
}

Multiplier::~Multiplier() {
  release_on_device(*device_, [&] { blas_->cublasDestroy_v2.unchecked(handle_); });
}

void Multiplier::multiply(const void* left, int64_t rows, const void* right, int64_t refs,
                          int64_t dim, float* out, CUstream stream) const {
  const Cublas& blas = *blas_;
  const bool plain = factors_ == Factors::plain_float32;
  const int type = plain ? kFloat32 : kFloat16;
  const int compute = plain ? kCompute32Pedantic : kCompute32;
  const float one = 1, zero = 0;
  blas.cublasSetStream_v2(handle_, stream);  // this also resets the workspace
  blas.cublasSetWorkspace_v2(handle_, workspace_.data(), workspace_.bytes());
  // cuBLAS is column-major: to it our rows are columns, and the result is right left^T.
  blas.cublasGemmEx(handle_, kBlasTranspose, kBlasKeep, int(refs), int(rows), int(dim), &one, right,
                    type, int(dim), left, type, int(dim), &zero, out, kFloat32, int(refs), compute,
                    kGemmDefault);
}

template <class Each>
void DeviceScorer::each_tile_buffer(const BankShape& bank, int64_t rows, int64_t dense_rows,
                                    Each&& each) {
  each(&DeviceScorer::parts_, rows * parts_dim(bank.factors, bank.dim));
  each(&DeviceScorer::part_norms_, bank.factors == Factors::parts ? rows : 0);
  each(&DeviceScorer::products_, dense_rows * bank.rows);
  each(&DeviceScorer::candidates_, rows * 2 * blocks(bank.rows, ANOCO_GPU_GROUP));
  each(&DeviceScorer::listed_, rows * ANOCO_GPU_LISTED);
  each(&DeviceScorer::again_,
       gpu::keeps_products(bank.path, bank.factors) ? 0 : rows * ANOCO_GPU_AGAIN * ANOCO_GPU_GROUP);
  each(&DeviceScorer::dense_rows_, rows);
  each(&DeviceScorer::dense_count_, 1);
  each(&DeviceScorer::limit_, rows);
  each(&DeviceScorer::totals_, dense_rows);
  each(&DeviceScorer::mean_, dense_rows * bank.dim);
}

template <class Each>
void DeviceScorer::each_row_buffer(int64_t max_rows, Each&& each) {
  each(&DeviceScorer::norms_, max_rows);
  each(&DeviceScorer::energy_, max_rows);
  each(&DeviceScorer::best_, max_rows);
  each(&DeviceScorer::anchor_, max_rows);
  each(&DeviceScorer::neighbors_, max_rows);
  each(&DeviceScorer::bad_, 1);
}

int64_t DeviceScorer::tile_bytes(const BankShape& bank, bool gram, int64_t rows,
                                 int64_t dense_rows) {
  return (gram ? bank.gram_bytes() : 0) +
         count_bytes([&](auto& each) { each_tile_buffer(bank, rows, dense_rows, each); });
}

int64_t DeviceScorer::bytes(const BankShape& bank, const Settings& settings, int64_t max_rows) {
  const TileLayout layout(bank, max_rows, settings.memory);
  return layout.bytes - (layout.gram ? bank.gram_bytes() : 0) +
         count_bytes([&](auto& each) { each_row_buffer(max_rows, each); });
}

DeviceScorer::DeviceScorer(std::shared_ptr<const DeviceBank> bank, const Settings& settings,
                           int64_t max_rows)
    : bank_(std::move(bank)),
      settings_(settings),
      max_rows_(max_rows),
      layout_(bank_->shape(), max_rows, settings.memory) {
  if (bank_->shape().path == ProductPath::cublas)
    multiplier_.emplace(bank_->device(), layout_.workspace, bank_->shape().factors);
  DeviceAllocator allocator{*this, bank_->device()};
  each_tile_buffer(bank_->shape(), layout_.most_rows, layout_.dense_rows, allocator);
  each_row_buffer(max_rows, allocator);
  if (layout_.gram) gram_ = bank_->gram([&](float* out) { compute_gram(out); });
}

void DeviceScorer::compute_gram(float* out) const {
  const CurrentDevice current(*bank_->device());
  const Stream stream(bank_->device());
  {
    const DeviceChange change;  // cuBLAS loads its kernel
    // Rows of the bank in the place of a query's, as many at a time as there is memory to split.
    const bool parts = bank_->shape().factors == Factors::parts;
    const int64_t height = parts ? layout_.most_rows : bank_->rows();
    for (int64_t first = 0; first < bank_->rows(); first += height) {
      const int64_t rows = std::min(height, bank_->rows() - first);
      const FactorRows factors = find_factors(bank_->patches().from(first, bank_->dim()),
                                              bank_->norms() + first, rows, stream.get());
      multiply(factors, rows, out + first * bank_->rows(), stream.get());
    }
  }
  stream.wait();
}

void DeviceScorer::enqueue(Patches query, int64_t rows, CUstream stream) const {
  compute_norms(*bank_->device(), query, rows, bank_->dim(), norms_.data(), bad_.data(), stream);
  const int64_t height = layout_.height(rows);
  for (int64_t first = 0; first < rows; first += height)
    score_tile(query.from(first, bank_->dim()), first, std::min(height, rows - first), stream);
}

namespace {

// The kernels that read features, for either type.
template <class Number>
struct TypedKernels;

template <>
struct TypedKernels<float> {
  const Kernels& k;
  const Kernels::Walk<float>& walk = k.walk_f32;
  const Kernels::PullEnergy<float>& pull_energy = k.pull_energy_f32;
  const Kernels::DenseLimit<float>& dense_limit = k.dense_limit_f32;
  const Kernels::DensePull<float>& dense_pull = k.dense_pull_f32;
  const Kernels::DenseEnergy<float>& dense_energy = k.dense_energy_f32;
};

template <>
struct TypedKernels<Half> {
  const Kernels& k;
  const Kernels::Walk<Half>& walk = k.walk_f16;
  const Kernels::PullEnergy<Half>& pull_energy = k.pull_energy_f16;
  const Kernels::DenseLimit<Half>& dense_limit = k.dense_limit_f16;
  const Kernels::DensePull<Half>& dense_pull = k.dense_pull_f16;
  const Kernels::DenseEnergy<Half>& dense_energy = k.dense_energy_f16;
};

}  // namespace

DeviceScorer::FactorRows DeviceScorer::find_factors(Patches query, const float* norms, int64_t rows,
                                                    CUstream stream) const {
  const DeviceBank& bank = *bank_;
  if (bank.shape().factors != Factors::parts)
    return {query.floats(), bank.patches().floats(), norms, bank.norms(), int(bank.dim())};
  split(*bank.device(), query, norms, rows, bank.dim(), false, parts_.data(), part_norms_.data(),
        stream);
  return {parts_.data(), bank.parts(), part_norms_.data(), bank.part_norms(),
          int(parts_dim(Factors::parts, bank.dim()))};
}

void DeviceScorer::multiply(const FactorRows& factors, int64_t rows, float* out,
                            CUstream stream) const {
  const Kernels& k = bank_->device()->kernels();
  const int count = int(rows), refs = int(bank_->rows());
  if (multiplier_)
    multiplier_->multiply(factors.query, rows, factors.bank, refs, factors.dim, out, stream);
  else if (bank_->shape().factors != Factors::plain_float32)
    k.products_f16(each_product_tile(rows, refs), stream, factors.query_halves(), nullptr, nullptr,
                   0, count, factors.bank_halves(), refs, factors.dim, out);
  else
    k.products_f32(
        any_part(int64_t{blocks(rows, ANOCO_GPU_TILE_ROWS)} * blocks(refs, ANOCO_GPU_TILE_COLUMNS)),
        stream, static_cast<const float*>(factors.query), count,
        static_cast<const float*>(factors.bank), refs, factors.dim, out);
}

void DeviceScorer::score_tile(Patches query, int64_t first, int64_t rows, CUstream stream) const {
  const Patches bank = bank_->patches();
  const FactorRows factors = find_factors(query, norms_.data() + first, rows, stream);
  if (keeps_products()) multiply(factors, rows, products_.data(), stream);
  find_candidates(factors, rows, stream);
  const auto finish = [&](auto* q, auto* r) {
    find_neighbors(q, r, factors, first, rows, stream);
    for (int64_t done = 0; done < rows; done += layout_.dense_rows)
      finish_dense_rows(q, r, factors, first, done, stream);
  };
  if (bank.type == Operands::float16)
    finish(query.halves(), bank.halves());
  else
    finish(query.floats(), bank.floats());
}

void DeviceScorer::find_candidates(const FactorRows& factors, int64_t rows, CUstream stream) const {
  const Kernels& k = bank_->device()->kernels();
  const int count = int(rows), refs = int(bank_->rows());
  if (keeps_products())
    k.candidates(each_row(rows), stream, products_.data(), factors.query_norms, factors.bank_norms,
                 count, refs, candidates_.data());
  else
    k.qr_top2_f16(each_product_tile(rows, refs), stream, factors.query_halves(),
                  factors.query_norms, factors.bank_halves(), factors.bank_norms, count, refs,
                  factors.dim, candidates_.data());
}

// Scores all rows but the dense ones, which it lists.
template <class Number>
void DeviceScorer::find_neighbors(const Number* q, const Number* bank, const FactorRows& factors,
                                  int64_t first, int64_t rows, CUstream stream) const {
  const TypedKernels<std::remove_const_t<Number>> k{bank_->device()->kernels()};
  const int count = int(rows), refs = int(bank_->rows()), dim = int(bank_->dim());
  const float *norms = norms_.data() + first, *r_norms = bank_->norms();
  int* neighbors = neighbors_.data() + first;
  driver().cuMemsetD32Async(dense_count_.address(), 0, 1, stream);
  k.walk(each_warp(rows), stream, keeps_products() ? products_.data() : nullptr, candidates_.data(),
         q, norms, bank, r_norms, factors.query_halves(), factors.query_norms,
         factors.bank_halves(), factors.bank_norms, gram_ ? gram_->data() : nullptr, count, refs,
         dim, factors.dim, anchor_.data() + first, best_.data() + first, listed_.data(), neighbors,
         dense_rows_.data(), limit_.data(), dense_count_.data(), again_.data());
  k.pull_energy(each_row(rows), stream, q, norms, bank, r_norms, listed_.data(), neighbors,
                settings_.lambda, float(settings_.floor), count, dim, int(settings_.metric),
                energy_.data() + first);
}

template <class Number>
void DeviceScorer::finish_dense_rows(const Number* q, const Number* bank, const FactorRows& factors,
                                     int64_t first, int64_t done, CUstream stream) const {
  const TypedKernels<std::remove_const_t<Number>> k{bank_->device()->kernels()};
  const int refs = int(bank_->rows()), dim = int(bank_->dim());
  const float *norms = norms_.data() + first, *r_norms = bank_->norms();
  const int *list = dense_rows_.data() + done, *length = dense_count_.data();
  const int* anchor = anchor_.data() + first;
  const int from = int(done), room = int(layout_.dense_rows), packed = keeps_products() ? 0 : 1;
  const int64_t high = blocks(room, ANOCO_GPU_TILE_ROWS);
  if (!keeps_products())
    k.k.products_f16(any_part(each_product_tile(room, refs).x), stream, factors.query_halves(),
                     list, length, from, room, factors.bank_halves(), refs, factors.dim,
                     products_.data());
  k.dense_limit(any_part(high * blocks(refs, ANOCO_GPU_TILE_COLUMNS)), stream, products_.data(),
                factors.query_norms, factors.bank_norms, bank, gram_ ? factors.bank_norms : r_norms,
                gram_ ? gram_->data() : nullptr, anchor, best_.data() + first, list, length, from,
                room, packed, refs, dim, limit_.data() + done);
  k.k.dense_weights(any_part(room), stream, products_.data(), norms, r_norms, factors.query_norms,
                    factors.bank_norms, anchor, limit_.data() + done, list, length, from, room,
                    packed, float(settings_.floor), refs, totals_.data(),
                    neighbors_.data() + first);
  k.dense_pull(any_part(high * blocks(dim, ANOCO_GPU_TILE_COLUMNS)), stream, products_.data(), bank,
               list, length, from, room, packed, refs, dim, mean_.data());
  k.dense_energy(any_part(room), stream, q, norms, mean_.data(), totals_.data(), list, length, from,
                 room, settings_.lambda, dim, int(settings_.metric), energy_.data() + first);
}

}  // namespace anoco::gpu
