#include "gpu/scorer.hpp"

#include <algorithm>

namespace anoco::gpu {
namespace {

constexpr int64_t kFloat = sizeof(float);

// What cuBLAS recommends; with less than the least some of its functions fail.
constexpr int64_t kWorkspace = 4 << 20, kLeastWorkspace = 64 << 10;

// With the Gram matrix there must be room for tiles that keep the device busy.
constexpr int64_t kLeastTile = 128;

constexpr int64_t kRounded = 16;  // rows that tensor cores take together

}  // namespace

TileLayout::TileLayout(int64_t refs, int64_t dim, Operands operands, int64_t max_rows,
                       int64_t memory)
    : workspace(std::clamp(memory / 8, kLeastWorkspace, kWorkspace)) {
  const int64_t gram_bytes = refs * refs * kFloat, room = memory - workspace;
  const int64_t with_gram = (refs + 2 * dim + 1) * kFloat;
  const int64_t without = (2 * refs + 2 * dim + 1) * kFloat + dim * bytes_of(operands);
  gram = gram_bytes + std::min(kLeastTile, max_rows) * with_gram <= room;
  const int64_t row = gram ? with_gram : without;
  const int64_t fit = (room - (gram ? gram_bytes : 0)) / row;
  most_rows =
      std::min(max_rows, fit >= kRounded ? fit / kRounded * kRounded : std::max<int64_t>(fit, 1));
  bytes = workspace + (gram ? gram_bytes : 0) + most_rows * row;
  row_bytes = 3 * kFloat + 2 * int64_t(sizeof(int));
}

int64_t TileLayout::height(int64_t rows) const {
  const int64_t tiles = (rows + most_rows - 1) / most_rows;
  const int64_t even = (rows + tiles - 1) / tiles;
  return std::min((even + kRounded - 1) / kRounded * kRounded, most_rows);
}

Multiplier::Multiplier(SharedDevice device, int64_t workspace, Operands operands)
    : device_(std::move(device)), workspace_(device_, workspace), operands_(operands) {
  const Cublas& blas = cublas();
  const Current current(*device_);
  blas.cublasCreate_v2(&handle_);
  // TF32 and half-precision sums stay off: they change which references are neighbours.
  const int code = blas.cublasSetMathMode.quietly(
      handle_, operands == Operands::float16 ? kMathFullSums : kMathPedantic);
  if (code == 0) return;
  blas.cublasDestroy_v2.quietly(handle_);
  fail_cublas_call(blas.cublasSetMathMode.name(), code);
}

Multiplier::~Multiplier() {
  freeing(*device_, [&] { cublas().cublasDestroy_v2.quietly(handle_); });
}

void Multiplier::multiply(Patches left, int64_t rows, Patches right, int64_t refs, int64_t dim,
                          float* out, CUstream stream) const {
  const Cublas& blas = cublas();
  const int type = operands_ == Operands::float16 ? kFloat16 : kFloat32;
  const int compute = operands_ == Operands::float16 ? kCompute32 : kCompute32Pedantic;
  const float one = 1, zero = 0;
  blas.cublasSetStream_v2(handle_, stream);  // which takes the workspace away
  blas.cublasSetWorkspace_v2(handle_, workspace_.data(), workspace_.bytes());
  // cuBLAS counts columns first: to it our rows are columns, and the result is right left^T.
  blas.cublasGemmEx(handle_, kBlasTranspose, kBlasKeep, int(refs), int(rows), int(dim), &one,
                    right.floats(), type, int(dim), left.floats(), type, int(dim), &zero, out,
                    kFloat32, int(refs), compute, kGemmDefault);
}

DeviceScorer::DeviceScorer(std::shared_ptr<const DeviceBank> bank, const Settings& settings,
                           int64_t max_rows)
    : bank_(std::move(bank)),
      settings_(settings),
      max_rows_(max_rows),
      layout_(bank_->rows(), bank_->dim(), bank_->patches().type, max_rows, settings.memory),
      multiplier_(bank_->device(), layout_.workspace, bank_->patches().type),
      products_(bank_->device(), layout_.most_rows * bank_->rows()),
      anchor_products_(bank_->device(),
                       (layout_.gram ? bank_->rows() : layout_.most_rows) * bank_->rows()),
      anchors_(
          bank_->device(),
          layout_.gram ? 0 : layout_.most_rows * bank_->dim() * bytes_of(bank_->patches().type)),
      limit_(bank_->device(), layout_.most_rows),
      drift_(bank_->device(), layout_.most_rows * bank_->dim()),
      moved_(bank_->device(), layout_.most_rows * bank_->dim()),
      norms_(bank_->device(), max_rows),
      energy_(bank_->device(), max_rows),
      best_(bank_->device(), max_rows),
      anchor_(bank_->device(), max_rows),
      neighbors_(bank_->device(), max_rows),
      bad_(bank_->device(), 1) {
  if (layout_.gram) compute_gram();
}

void DeviceScorer::compute_gram() {
  const Current current(*bank_->device());
  const Stream stream(bank_->device());
  multiplier_.multiply(bank_->patches(), bank_->rows(), bank_->patches(), bank_->rows(),
                       bank_->dim(), anchor_products_.data(), stream.get());
  stream.wait();
}

void DeviceScorer::enqueue(Patches query, int64_t rows, CUstream stream) const {
  measure(*bank_->device(), query, rows, bank_->dim(), norms_.data(), bad_.data(), stream);
  const int64_t height = layout_.height(rows);
  for (int64_t first = 0; first < rows; first += height)
    score_tile(query.from(first, bank_->dim()), first, std::min(height, rows - first), stream);
}

void DeviceScorer::score_tile(Patches query, int64_t first, int64_t rows, CUstream stream) const {
  const Kernels& k = bank_->device()->kernels();
  const int64_t refs = bank_->rows(), dim = bank_->dim();
  const Patches bank = bank_->patches();
  const float* norms = norms_.data() + first;
  int* anchor = anchor_.data() + first;
  float* best = best_.data() + first;
  multiplier_.multiply(query, rows, bank, refs, dim, products_.data(), stream);
  k.anchor(each_row(rows), stream, products_.data(), norms, bank_->norms(), int(rows), int(refs),
           anchor, best);
  if (!layout_.gram) {
    const Patches anchors{bank.type, anchors_.address()};
    gather(*bank_->device(), bank, anchor, rows, dim, anchors, stream);
    multiplier_.multiply(anchors, rows, bank, refs, dim, anchor_products_.data(), stream);
  }
  k.violator(each_row(rows), stream, products_.data(), anchor_products_.data(),
             layout_.gram ? 1 : 0, norms, bank_->norms(), anchor, best, int(rows), int(refs),
             limit_.data());
  pull(query, first, rows, stream);
}

void DeviceScorer::pull(Patches query, int64_t first, int64_t rows, CUstream stream) const {
  const Kernels& k = bank_->device()->kernels();
  const Patches bank = bank_->patches();
  // One road for both types: they differ in what two pointers lead to.
  const auto both = [&](const auto& aggregate, const auto& energy, auto* q, auto* r) {
    const int count = int(rows), refs = int(bank_->rows()), dim = int(bank_->dim());
    const float* norms = norms_.data() + first;
    aggregate(each_row(rows), stream, products_.data(), q, norms, r, bank_->norms(),
              anchor_.data() + first, limit_.data(), settings_.lambda, float(settings_.floor),
              count, refs, dim, drift_.data(), moved_.data(), neighbors_.data() + first);
    energy(each_row(rows), stream, q, norms, drift_.data(), moved_.data(), count, dim,
           int(settings_.metric), energy_.data() + first);
  };
  if (bank.type == Operands::float16)
    both(k.aggregate_f16, k.energy_f16, query.halves(), bank.halves());
  else
    both(k.aggregate_f32, k.energy_f32, query.floats(), bank.floats());
}

}  // namespace anoco::gpu
