#include "gpu/workspace.hpp"

#include <algorithm>

namespace anoco::gpu {
namespace {

constexpr size_t kMostGraphs =
    64;  // augmentation and letterboxes give few different numbers of patches

int64_t feature_bytes(const InputContract& input, Operands type) {
  return input.patches() * input.dim * bytes_of(type);
}

}  // namespace

template <class BankOrShape, class Each>
void DeviceWorkspace::each_buffer(const Device& device, const LoadedProduct& product,
                                  const ContextSettings& settings, Operands features,
                                  Operands operands, const BankOrShape& bank, Each&& each) {
  using Self = DeviceWorkspace;
  const InputContract& input = product.input();
  const PictureSize size = largest_picture(product, settings);
  const int64_t pixels = input.width * input.height, patches = input.patches();
  const bool tiled = product.product().tiles.has_value();
  each.part(&Self::patch_mask_, input, product.product().region, product.ignore());
  each.part(&Self::device_preparer_, input, size.width, size.height);
  each.part(&Self::selection_, patches);
  each.part(&Self::scorer_, bank, scorer_settings(product, settings, default_memory(device)),
            patches);
  each.part(&Self::map_, input, product.baseline_energy(), product.product().pooling);
  each(&Self::tiled_pixels_, tiled ? 3 * pixels : 0);
  each(&Self::joined_, tiled ? feature_bytes(input, features) : 0);
  each(&Self::gathered_, gathers(product) ? feature_bytes(input, features) : 0);
  each(&Self::converted_, features == operands ? 0 : feature_bytes(input, operands));
  each(&Self::energy_grid_, patches);
  each(&Self::similarity_grid_, patches);
  each(&Self::anchor_grid_, patches);
  each(&Self::host_similarity_, patches);
  each(&Self::host_anchor_, patches);
  each(&Self::host_bad_row_, 1);
  each(&Self::similarity_, patches);
  each(&Self::anchor_, patches);
  each(&Self::scored_, patches);
  if (!has_query_views(product)) return;
  each.part(&Self::average_, input);
  each(&Self::host_pixels_, 3 * pixels);
  each(&Self::warped_, 3 * pixels);
}

DeviceWorkspace::DeviceWorkspace(EngineSession& engine, std::shared_ptr<const DeviceBank> bank,
                                 std::shared_ptr<const LoadedProduct> product,
                                 const ContextSettings& settings)
    : Workspace(std::move(product), settings),
      device_(bank->device()),
      engine_(engine),
      tiles_(tile_places(product_->window(), product_->product().tiles)),
      graph_maker_(device_, engine.graph_counts()),
      begun_(device_, kEventDefault),
      prepared_(device_, kEventDefault),
      seen_(device_, kEventDefault),
      done_(device_, kEventDefault),
      stream_(device_) {
  const Patches features = engine.features();
  each_buffer(*device_, *product_, settings, features.type, bank->patches().type, bank,
              DeviceAllocator{*this, device_});
  pixels_ = tiles_.empty() ? address_of(engine.input()) : tiled_pixels_.address();
  features_ = {features.type, tiles_.empty() ? features.address : joined_.address()};
}

int64_t DeviceWorkspace::bytes(const Device& device, const LoadedProduct& product,
                               const ContextSettings& settings, Operands features, Factors factors,
                               ProductPath path) {
  const BankShape bank{product.bank()->rows(), product.input().dim, factors, path,
                       device.capability()};
  return Workspace::bytes(product, settings) + count_bytes([&](auto& each) {
           each_buffer(device, product, settings, features, features_of(factors), bank, each);
         });
}

Workspace::Findings DeviceWorkspace::compute(const anoco_image& image, StageTimes& times) {
  const CurrentDevice current(*device_);
  StreamGuard guard(stream_);
  Findings found;
  begun_.record(stream_.get());
  found.placement =
      device_preparer_.prepare(image, reinterpret_cast<uint8_t*>(pixels_), stream_.get());
  std::copy_n(patch_mask_.scored(found.placement), patches(), scored_.data());
  selection_.set(scored_.data(), stream_.get());
  prepared_.record(stream_.get());
  run_engine();
  seen_.record(stream_.get());
  launch(average_ ? Part::scores : Part::both);
  done_.record(stream_.get());
  stream_.wait();
  times.preprocess += prepared_.since(begun_);
  times.backbone += seen_.since(prepared_);
  times.scoring += done_.since(seen_);
  check_scores();
  keep_identity();
  if (average_) average_views(found.placement, times);
  guard.dismiss();
  found.score = map_.score();
  found.peak = map_.peak();
  found.energy = map_.grid().data();
  found.compared = map_.compared();
  found.similarity = similarity_.data();
  found.map = map_.map();
  found.anchor = anchor_.data();
  found.scored = scored_.data();
  return found;
}

void DeviceWorkspace::run_engine() {
  if (tiles_.empty()) engine_.run(stream_);
  for (const TilePlace& place : tiles_) run_tile(place);
}

void DeviceWorkspace::run_tile(const TilePlace& place) {
  const InputContract& window = product_->window();
  const auto copy = [&](CUdeviceptr from, int64_t from_pitch, CUdeviceptr to, int64_t to_pitch,
                        int64_t width, int64_t height) {
    Memcpy2D both{};
    both.srcMemoryType = both.dstMemoryType = kMemoryDevice;
    both.srcDevice = from;
    both.srcPitch = size_t(from_pitch);
    both.dstDevice = to;
    both.dstPitch = size_t(to_pitch);
    both.WidthInBytes = size_t(width);
    both.Height = size_t(height);
    driver().cuMemcpy2DAsync_v2(&both, stream_.get());
  };
  const int64_t line = 3 * input().width, window_line = 3 * window.width;
  copy(pixels_ + CUdeviceptr(place.top * line + 3 * place.left), line, address_of(engine_.input()),
       window_line, window_line, window.height);
  engine_.run(stream_);
  const int64_t patch = window.dim * bytes_of(features_.type);
  const int64_t row = place.first_row - place.top / window.stride;
  const int64_t col = place.first_col - place.left / window.stride;
  copy(engine_.features().address + CUdeviceptr((row * window.cols + col) * patch),
       window.cols * patch,
       features_.address + CUdeviceptr((place.first_row * input().cols + place.first_col) * patch),
       input().cols * patch, (place.end_col - place.first_col) * patch,
       place.end_row - place.first_row);
}

void DeviceWorkspace::launch(Part part) {
  const auto key = std::make_pair(part, selection_.count());
  if (work_.size() == kMostGraphs && work_.count(key) == 0) {
    stream_.wait();
    work_.clear();
  }
  work_[key].run(graph_maker_, stream_, [&] { enqueue(part); });
}

void DeviceWorkspace::enqueue(Part part) {
  if (part != Part::map) enqueue_scores();
  if (part != Part::scores) map_.enqueue(energy_grid_.data(), selection_, stream_.get());
}

Patches DeviceWorkspace::query() const {
  const Operands wanted = scorer_->bank().patches().type;
  if (features_.type != wanted) return {wanted, converted_.address()};
  return selection_.all() ? features_ : Patches{wanted, gathered_.address()};
}

void DeviceWorkspace::enqueue_scores() {
  const CUstream stream = stream_.get();
  const Kernels& k = device_->kernels();
  const int64_t rows = selection_.count();
  const int all = int(patches());
  Patches from = features_;
  if (!selection_.all()) {
    from.address = gathered_.address();
    gather(*device_, features_, selection_.rows(), rows, input().dim, from, stream);
  }
  const Patches operands = query();
  if (operands.type != from.type) convert(*device_, from, rows * input().dim, operands, stream);
  scorer_->enqueue(operands, rows, stream);
  k.scatter_f32(each_number(all), stream, scorer_->energy(), selection_.places(), all, 0.0f,
                energy_grid_.data());
  k.scatter_f32(each_number(all), stream, scorer_->similarity(), selection_.places(), all, 0.0f,
                similarity_grid_.data());
  k.scatter_i32(each_number(all), stream, scorer_->anchor(), selection_.places(), all, -1,
                anchor_grid_.data());
  download(scorer_->bad(), host_bad_row_, 1, stream);
  download(energy_grid_.data(), map_.grid(), all, stream);
  download(similarity_grid_.data(), host_similarity_, all, stream);
  download(anchor_grid_.data(), host_anchor_, all, stream);
}

void DeviceWorkspace::check_scores() {
  if (const int bad = host_bad_row_[0]; bad != ANOCO_GPU_NO_BAD_ROW) {
    const int64_t bytes = input().dim * bytes_of(query().type);
    PinnedBuffer<uint8_t> row(device_, bytes);
    download(reinterpret_cast<const uint8_t*>(query().from(bad, input().dim).address), row, bytes,
             stream_.get());
    stream_.wait();
    refuse_row("query patch " + std::to_string(selection_.patch(bad)), row.data(), query().type,
               input().dim);
  }
  check_energies(map_.grid().data(), patches());
}

void DeviceWorkspace::keep_identity() {
  std::copy_n(host_similarity_.data(), patches(), similarity_.data());
  std::copy_n(host_anchor_.data(), patches(), anchor_.data());
}

// Runs one part for a picture whose features are on the device, and waits for it.
void DeviceWorkspace::run_part(const uint8_t* scored, Part part) {
  selection_.set(scored, stream_.get());
  launch(part);
  stream_.wait();
}

// Warping and averaging need float64 and happen a few times per picture, so they stay on the host.
void DeviceWorkspace::average_views(const Placement& placement, StageTimes& times) {
  average_->start();
  average_->add(kIdentity, map_.grid().data(), scored_.data());
  {
    const StageTimer timer(times.preprocess);
    download(reinterpret_cast<const uint8_t*>(pixels_), host_pixels_, host_pixels_.size(),
             stream_.get());
    stream_.wait();
  }
  for (const Affine& view : product_->product().views) {
    const uint8_t* seen = nullptr;
    {
      const StageTimer timer(times.preprocess);
      warp(host_pixels_.data(), input().width, input().height, view, input().fill, warped_.data());
      driver().cuMemcpyHtoDAsync_v2(pixels_, warped_.data(), size_t(warped_.size()), stream_.get());
      seen = patch_mask_.scored(placement, view);
    }
    if (std::find(seen, seen + patches(), uint8_t{1}) == seen + patches()) {
      stream_.wait();
      continue;
    }
    {
      const StageTimer timer(times.backbone);
      run_engine();
      stream_.wait();
    }
    const StageTimer timer(times.scoring);
    run_part(seen, Part::scores);
    check_scores();
    average_->add(view, map_.grid().data(), seen);
  }
  const StageTimer timer(times.scoring);
  average_->finish(scored_.data(), map_.grid().data());
  driver().cuMemcpyHtoDAsync_v2(energy_grid_.address(), map_.grid().data(), energy_grid_.bytes(),
                                stream_.get());
  run_part(scored_.data(), Part::map);
}

}  // namespace anoco::gpu
