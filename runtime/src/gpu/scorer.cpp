#include "gpu/scorer.hpp"

#include <algorithm>

namespace anoco::gpu {
namespace {

// The size that cuBLAS recommends for its workspace, and the least with which all of its functions
// work.
constexpr int64_t kWorkspace = 4 << 20, kLeastWorkspace = 64 << 10;

// If the Gram matrix is kept, there must be memory left for tiles of this height, which keep the
// device busy.
constexpr int64_t kLeastTile = 128;

constexpr int64_t kRounded = 16;  // rows that tensor cores take together

}  // namespace

TileLayout::TileLayout(const BankShape& bank, int64_t max_rows, int64_t memory)
    : workspace(std::clamp(memory / 8, kLeastWorkspace, kWorkspace)) {
  const int64_t room = memory - workspace;
  gram = DeviceScorer::tile_bytes(bank, true, std::min(kLeastTile, max_rows)) <= room;
  const int64_t fixed = DeviceScorer::tile_bytes(bank, gram, 0);
  const int64_t row = DeviceScorer::tile_bytes(bank, gram, 1) - fixed;
  const int64_t fit = (room - fixed) / row;
  most_rows =
      std::min(max_rows, fit >= kRounded ? fit / kRounded * kRounded : std::max<int64_t>(fit, 1));
  bytes = workspace + DeviceScorer::tile_bytes(bank, gram, most_rows);
}

int64_t TileLayout::height(int64_t rows) const {
  const int64_t tiles = (rows + most_rows - 1) / most_rows;
  const int64_t even = (rows + tiles - 1) / tiles;
  return std::min((even + kRounded - 1) / kRounded * kRounded, most_rows);
}

Multiplier::Multiplier(SharedDevice device, int64_t workspace, Operands operands)
    : device_(std::move(device)), workspace_(device_, workspace), operands_(operands) {
  const Cublas& blas = cublas();
  const CurrentDevice current(*device_);
  blas.cublasCreate_v2(&handle_);
  // TF32 and half-precision sums stay off, because they change which references are neighbors.
  const int code = blas.cublasSetMathMode.unchecked(
      handle_, operands == Operands::float16 ? kMathFullSums : kMathPedantic);
  if (code == 0) return;
  blas.cublasDestroy_v2.unchecked(handle_);
  fail_cublas_call(blas.cublasSetMathMode.name(), code);
}

Multiplier::~Multiplier() {
  release_on_device(*device_, [&] { cublas().cublasDestroy_v2.unchecked(handle_); });
}

void Multiplier::multiply(Patches left, int64_t rows, Patches right, int64_t refs, int64_t dim,
                          float* out, CUstream stream) const {
  const Cublas& blas = cublas();
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
void DeviceScorer::each_tile_buffer(const BankShape& bank, bool gram, int64_t rows, Each&& each) {
  each(&DeviceScorer::products_, rows * bank.rows);
  each(&DeviceScorer::anchor_products_, (gram ? bank.rows : rows) * bank.rows);
  each(&DeviceScorer::anchors_, gram ? 0 : rows * bank.dim * bytes_of(bank.operands));
  each(&DeviceScorer::limit_, rows);
  each(&DeviceScorer::drift_, rows * bank.dim);
  each(&DeviceScorer::moved_, rows * bank.dim);
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

int64_t DeviceScorer::tile_bytes(const BankShape& bank, bool gram, int64_t rows) {
  return count_bytes([&](auto& each) { each_tile_buffer(bank, gram, rows, each); });
}

int64_t DeviceScorer::bytes(const BankShape& bank, const Settings& settings, int64_t max_rows) {
  return TileLayout(bank, max_rows, settings.memory).bytes +
         count_bytes([&](auto& each) { each_row_buffer(max_rows, each); });
}

DeviceScorer::DeviceScorer(std::shared_ptr<const DeviceBank> bank, const Settings& settings,
                           int64_t max_rows)
    : bank_(std::move(bank)),
      settings_(settings),
      max_rows_(max_rows),
      layout_(bank_->shape(), max_rows, settings.memory),
      multiplier_(bank_->device(), layout_.workspace, bank_->patches().type) {
  DeviceAllocator allocator{*this, bank_->device()};
  each_tile_buffer(bank_->shape(), layout_.gram, layout_.most_rows, allocator);
  each_row_buffer(max_rows, allocator);
  if (layout_.gram) compute_gram();
}

void DeviceScorer::compute_gram() {
  const CurrentDevice current(*bank_->device());
  const Stream stream(bank_->device());
  multiplier_.multiply(bank_->patches(), bank_->rows(), bank_->patches(), bank_->rows(),
                       bank_->dim(), anchor_products_.data(), stream.get());
  stream.wait();
}

void DeviceScorer::enqueue(Patches query, int64_t rows, CUstream stream) const {
  compute_norms(*bank_->device(), query, rows, bank_->dim(), norms_.data(), bad_.data(), stream);
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
  // The code is the same for both types; only the types of two pointers differ.
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
