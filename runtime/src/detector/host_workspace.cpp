#include "detector/host_workspace.hpp"

#include <algorithm>
#include <cstring>

#include "picture/pooling.hpp"

namespace anoco {
namespace {

// Spreads the first values over a grid, in place. It works from the end, because no value moves to
// a lower index.
template <class T>
void scatter(const uint8_t* scored, int64_t count, int64_t patches, T none, T* grid) {
  for (int64_t p = patches - 1; p >= 0; --p) grid[p] = scored[p] ? grid[--count] : none;
}

}  // namespace

template <class Each>
void HostWorkspace::each_buffer(const LoadedProduct& product, const ContextSettings& settings,
                                Each&& each) {
  using Self = HostWorkspace;
  const InputContract& input = product.input();
  const int64_t pixels = input.width * input.height, patches = input.patches();
  each.part(&Self::patch_mask_, input, product.product().region, product.ignore());
  each.part(&Self::tiling_, product.window(), product.product().tiles);
  each.part(&Self::scorer_, product.bank(), scorer_settings(product, settings, kDefaultMemory));
  each.part(&Self::map_builder_, input.rows, input.cols, input.stride);
  each(&Self::pixels_, 3 * pixels);
  each(&Self::gathered_, gathers(product) ? patches * input.dim : 0);
  each(&Self::energy_, patches);
  each(&Self::similarity_, patches);
  each(&Self::smoothed_, product.product().pooling == Pooling::smooth ? patches : 0);
  each(&Self::map_, pixels);
  each(&Self::anchor_, patches);
  each(&Self::scored_, patches);
  if (!has_query_views(product)) return;
  each.part(&Self::average_, input);
  each(&Self::warped_, 3 * pixels);
  each(&Self::view_energy_, patches);
}

HostWorkspace::HostWorkspace(Request& request, std::shared_ptr<const LoadedProduct> product,
                             const ContextSettings& settings)
    : Workspace(std::move(product), settings), request_(request) {
  each_buffer(*product_, settings, BufferAllocator{*this});
}

int64_t HostWorkspace::bytes(const LoadedProduct& product, const ContextSettings& settings) {
  return Workspace::bytes(product, settings) +
         count_bytes([&](auto& each) { each_buffer(product, settings, each); });
}

Workspace::Findings HostWorkspace::compute(const anoco_image& image, StageTimes& times) {
  check_on_host(image);
  Findings found;
  {
    const StageTimer timer(times.preprocess);
    found.placement = preparer_.prepare(image, pixels_.data());
    std::memcpy(scored_.data(), patch_mask_.scored(found.placement), size_t(patches()));
  }
  const float* features = nullptr;
  {
    const StageTimer timer(times.backbone);
    features = tiling_.features(request_, pixels_.data());
  }
  {
    const StageTimer timer(times.scoring);
    score_patches(features, scored_.data(),
                  {energy_.data(), anchor_.data(), similarity_.data(), nullptr});
  }
  if (average_) average_views(found.placement, times);
  const StageTimer timer(times.map);
  subtract_baseline();
  pool_energy(found);
  map_builder_.make(energy_.data(), scored_.data(), map_.data());
  found.energy = energy_.data();
  found.similarity = similarity_.data();
  found.map = map_.data();
  found.anchor = anchor_.data();
  found.scored = scored_.data();
  return found;
}

void HostWorkspace::score_patches(const float* features, const uint8_t* scored,
                                  const Outputs& out) {
  const int64_t dim = input().dim;
  const int64_t count = std::count(scored, scored + patches(), uint8_t{1});
  if (count < patches()) {
    float* next = gathered_.data();
    for (int64_t p = 0; p < patches(); ++p)
      if (scored[p]) next = std::copy_n(features + p * dim, dim, next);
    features = gathered_.data();
  }
  scorer_->score(features, count, out, scored);
  if (count == patches()) return;
  scatter(scored, count, patches(), 0.0f, out.energy);
  if (out.anchor != nullptr) scatter(scored, count, patches(), int64_t{-1}, out.anchor);
  if (out.similarity != nullptr) scatter(scored, count, patches(), 0.0f, out.similarity);
}

void HostWorkspace::average_views(const Placement& placement, StageTimes& times) {
  average_->start();
  average_->add(kIdentity, energy_.data(), scored_.data());
  for (const Affine& view : product_->product().views) {
    const uint8_t* seen = nullptr;
    {
      const StageTimer timer(times.preprocess);
      warp(pixels_.data(), input().width, input().height, view, input().fill, warped_.data());
      seen = patch_mask_.scored(placement, view);
    }
    const float* features = nullptr;
    {
      const StageTimer timer(times.backbone);
      features = tiling_.features(request_, warped_.data());
    }
    const StageTimer timer(times.scoring);
    if (std::find(seen, seen + patches(), uint8_t{1}) == seen + patches()) continue;
    score_patches(features, seen, {view_energy_.data(), nullptr, nullptr, nullptr});
    average_->add(view, view_energy_.data(), seen);
  }
  const StageTimer timer(times.scoring);
  average_->finish(scored_.data(), energy_.data());
}

void HostWorkspace::subtract_baseline() {
  const std::vector<float>& baseline = product_->baseline_energy();
  if (baseline.empty()) return;
  for (int64_t p = 0; p < patches(); ++p)
    energy_[p] = scored_[p] ? std::max(energy_[p] - baseline[size_t(p)], 0.0f) : 0.0f;
}

void HostWorkspace::pool_energy(Findings& found) {
  const Pooling pooling = product_->product().pooling;
  const Pooled pooled = pool(energy_.data(), scored_.data(), patches(), pooling);
  found.score = pooled.score;
  found.peak = pooled.peak;
  found.compared = energy_.data();
  if (pooling != Pooling::smooth) return;
  smooth_grid(energy_.data(), scored_.data(), input().rows, input().cols, smoothed_.data());
  found.score = pool(smoothed_.data(), scored_.data(), patches(), pooling).score;
  found.compared = smoothed_.data();
}

}  // namespace anoco
