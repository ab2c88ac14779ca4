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
  const bool kept = gpu::keeps_products(bank.path, bank.operands);
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

Multiplier::Multiplier(SharedDevice device, int64_t workspace, Operands operands)
    : device_(std::move(device)), workspace_(device_, workspace), operands_(operands) {
  const DeviceChange change;
  const CurrentDevice current(*device_);
  blas_ = &create_cublas_handle(&handle_);
  // TF32 and half-precision sums stay off, because they change which references are neighbors.
  const int code = blas_->cublasSetMathMode.unchecked(
      handle_, operands == Operands::float16 ? kMathFullSums : kMathPedantic);
  if (code == 0) return;
  blas_->cublasDestroy_v2.unchecked(handle_);
  fail_cublas_call(blas_->cublasSetMathMode.name(), code);
}

Multiplier::~Multiplier() {
  release_on_device(*device_, [&] { blas_->cublasDestroy_v2.unchecked(handle_); });
}

void Multiplier::multiply(Patches left, int64_t rows, Patches right, int64_t refs, int64_t dim,
                          float* out, CUstream stream) const {
  const Cublas& blas = *blas_;
  const int type = operands_ == Operands::float16 ? kFloat16 : kFloat32;
  const int compute = operands_ == Operands::float16 ? kCompute32 : kCompute32Pedantic;
  const float one = 1, zero = 0;
  blas.cublasSetStream_v2(handle_, stream);  // this also resets the workspace
  blas.cublasSetWorkspace_v2(handle_, workspace_.data(), workspace_.bytes());
  // cuBLAS is column-major: to it our rows are columns, and the result is right left^T.
  blas.cublasGemmEx(handle_, kBlasTranspose, kBlasKeep, int(refs), int(rows), int(dim), &one,
                    right.floats(), type, int(dim), left.floats(), type, int(dim), &zero, out,
                    kFloat32, int(refs), compute, kGemmDefault);
}

template <class Each>
void DeviceScorer::each_tile_buffer(const BankShape& bank, int64_t rows, int64_t dense_rows,
                                    Each&& each) {
  each(&DeviceScorer::products_, dense_rows * bank.rows);
  each(&DeviceScorer::candidates_, rows * 2 * blocks(bank.rows, ANOCO_GPU_GROUP));
  each(&DeviceScorer::listed_, rows * ANOCO_GPU_LISTED);
  each(&DeviceScorer::again_, gpu::keeps_products(bank.path, bank.operands)
                                  ? 0
                                  : rows * ANOCO_GPU_AGAIN * ANOCO_GPU_GROUP);
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
    multiplier_.emplace(bank_->device(), layout_.workspace, bank_->patches().type);
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
    multiply(bank_->patches(), bank_->rows(), out, stream.get());
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

// All products of rows with the bank.
void DeviceScorer::multiply(Patches left, int64_t rows, float* out, CUstream stream) const {
  const Kernels& k = bank_->device()->kernels();
  const Patches bank = bank_->patches();
  const int count = int(rows), refs = int(bank_->rows()), dim = int(bank_->dim());
  if (multiplier_)
    multiplier_->multiply(left, rows, bank, refs, dim, out, stream);
  else if (bank.type == Operands::float16)
    k.products_f16(each_product_tile(rows, refs), stream, left.halves(), nullptr, nullptr, 0, count,
                   bank.halves(), refs, dim, out);
  else
    k.products_f32(
        any_part(int64_t{blocks(rows, ANOCO_GPU_TILE_ROWS)} * blocks(refs, ANOCO_GPU_TILE_COLUMNS)),
        stream, left.floats(), count, bank.floats(), refs, dim, out);
}

void DeviceScorer::score_tile(Patches query, int64_t first, int64_t rows, CUstream stream) const {
  const Patches bank = bank_->patches();
  if (keeps_products()) multiply(query, rows, products_.data(), stream);
  const auto all = [&](auto* q, auto* r) {
    find_candidates(q, r, first, rows, stream);
    find_neighbors(q, r, first, rows, stream);
    for (int64_t done = 0; done < rows; done += layout_.dense_rows)
      finish_dense_rows(q, r, first, done, stream);
  };
  if (bank.type == Operands::float16)
    all(query.halves(), bank.halves());
  else
    all(query.floats(), bank.floats());
}

template <class Number>
void DeviceScorer::find_candidates(const Number* q, const Number* bank, int64_t first, int64_t rows,
                                   CUstream stream) const {
  const Kernels& k = bank_->device()->kernels();
  const int count = int(rows), refs = int(bank_->rows()), dim = int(bank_->dim());
  const float *norms = norms_.data() + first, *r_norms = bank_->norms();
  if constexpr (std::is_same_v<Number, Half>)
    if (!keeps_products())
      return k.qr_top2_f16(each_product_tile(rows, refs), stream, q, norms, bank, r_norms, count,
                           refs, dim, candidates_.data());
  k.candidates(each_row(rows), stream, products_.data(), norms, r_norms, count, refs,
               candidates_.data());
}

// Scores all rows but the dense ones, which it lists.
template <class Number>
void DeviceScorer::find_neighbors(const Number* q, const Number* bank, int64_t first, int64_t rows,
                                  CUstream stream) const {
  const TypedKernels<std::remove_const_t<Number>> k{bank_->device()->kernels()};
  const int count = int(rows), refs = int(bank_->rows()), dim = int(bank_->dim());
  const float *norms = norms_.data() + first, *r_norms = bank_->norms();
  int* neighbors = neighbors_.data() + first;
  driver().cuMemsetD32Async(dense_count_.address(), 0, 1, stream);
  k.walk(each_warp(rows), stream, keeps_products() ? products_.data() : nullptr, candidates_.data(),
         q, norms, bank, r_norms, gram_ ? gram_->data() : nullptr, count, refs, dim,
         anchor_.data() + first, best_.data() + first, listed_.data(), neighbors,
         dense_rows_.data(), limit_.data(), dense_count_.data(), again_.data());
  k.pull_energy(each_row(rows), stream, q, norms, bank, r_norms, listed_.data(), neighbors,
                settings_.lambda, float(settings_.floor), count, dim, int(settings_.metric),
                energy_.data() + first);
}

template <class Number>
void DeviceScorer::finish_dense_rows(const Number* q, const Number* bank, int64_t first,
                                     int64_t done, CUstream stream) const {
  const TypedKernels<std::remove_const_t<Number>> k{bank_->device()->kernels()};
  const int refs = int(bank_->rows()), dim = int(bank_->dim());
  const float *norms = norms_.data() + first, *r_norms = bank_->norms();
  const int *list = dense_rows_.data() + done, *length = dense_count_.data();
  const int* anchor = anchor_.data() + first;
  const int from = int(done), room = int(layout_.dense_rows), packed = keeps_products() ? 0 : 1;
  const int64_t high = blocks(room, ANOCO_GPU_TILE_ROWS);
  if constexpr (std::is_same_v<Number, Half>)
    if (!keeps_products())
      k.k.products_f16(any_part(each_product_tile(room, refs).x), stream, q, list, length, from,
                       room, bank, refs, dim, products_.data());
  k.dense_limit(any_part(high * blocks(refs, ANOCO_GPU_TILE_COLUMNS)), stream, products_.data(),
                norms, bank, r_norms, gram_ ? gram_->data() : nullptr, anchor, best_.data() + first,
                list, length, from, room, packed, refs, dim, limit_.data() + done);
  k.k.dense_weights(any_part(room), stream, products_.data(), norms, r_norms, anchor,
                    limit_.data() + done, list, length, from, room, packed, float(settings_.floor),
                    refs, totals_.data(), neighbors_.data() + first);
  k.dense_pull(any_part(high * blocks(dim, ANOCO_GPU_TILE_COLUMNS)), stream, products_.data(), bank,
               list, length, from, room, packed, refs, dim, mean_.data());
  k.dense_energy(any_part(room), stream, q, norms, mean_.data(), totals_.data(), list, length, from,
                 room, settings_.lambda, dim, int(settings_.metric), energy_.data() + first);
}

}  // namespace anoco::gpu
