#include "detector/workspace.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>

#include "failure.hpp"

namespace anoco {
namespace {

// Adds the time until it goes out of scope, in milliseconds.
class Lap {
 public:
  explicit Lap(double& sum) : sum_(sum) {}
  ~Lap() { sum_ += std::chrono::duration<double, std::milli>(Clock::now() - start_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  double& sum_;
  Clock::time_point start_ = Clock::now();
};

Settings scorer_settings(const Product& product, const ContextSettings& context) {
  Settings settings;
  settings.metric = product.metric;
  settings.lambda = product.lambda;
  settings.floor = product.floor;
  settings.threads = context.threads;
  settings.memory = context.memory;
  settings.pin = context.pin;
  return settings;
}

struct Size {
  int64_t width, height;
};

Size largest_picture(const LoadedProduct& product, const ContextSettings& settings) {
  Size size{std::max<int64_t>(settings.max_width, 1), std::max<int64_t>(settings.max_height, 1)};
  if (!product.product().references.empty()) {
    const Reference& first = product.product().references.front();
    size = {std::max(size.width, first.width), std::max(size.height, first.height)};
  }
  return size;
}

bool has_query_views(const LoadedProduct& product) {
  return product.product().tta == Tta::paper && !product.product().views.empty();
}

bool gathers(const LoadedProduct& product) {
  return !product.all_counted() || has_query_views(product);
}

Preparer make_preparer(const LoadedProduct& product, const ContextSettings& settings) {
  const Size size = largest_picture(product, settings);
  return Preparer(product.canvas(), size.width, size.height);
}

// Moves the first values to their places in a grid, in place: no value moves forward.
template <class T>
void scatter(const uint8_t* counted, int64_t count, int64_t patches, T none, T* grid) {
  for (int64_t p = patches - 1; p >= 0; --p) grid[p] = counted[p] ? grid[--count] : none;
}

}  // namespace

Workspace::Workspace(std::shared_ptr<const LoadedProduct> product, const ContextSettings& settings)
    : product_(std::move(product)),
      preparer_(make_preparer(*product_, settings)),
      counter_(product_->canvas(), product_->product().region, product_->ignore()),
      canvas_(product_->window(), product_->product().tiles),
      scorer_(product_->bank(), scorer_settings(product_->product(), settings)),
      map_maker_(product_->canvas().rows, product_->canvas().cols, product_->canvas().stride),
      regions_(product_->canvas()),
      pixels_(product_->canvas().width * product_->canvas().height * 3),
      gathered_(gathers(*product_) ? patches() * product_->canvas().dim : 0),
      energy_(patches()),
      similarity_(patches()),
      map_(product_->canvas().width * product_->canvas().height),
      anchor_(patches()),
      counted_(patches()),
      outline_(product_->canvas().width * product_->canvas().height) {
  if (!has_query_views(*product_)) return;
  average_.emplace(product_->canvas());
  warped_ = Buffer<uint8_t>(pixels_.size());
  view_energy_ = Buffer<float>(patches());
}

int64_t Workspace::bytes(const LoadedProduct& product, const ContextSettings& settings) {
  const InputContract& canvas = product.canvas();
  const Size size = largest_picture(product, settings);
  const int64_t pixels = canvas.width * canvas.height, patches = canvas.patches();
  const int64_t views =
      has_query_views(product) ? ViewAverage::bytes(canvas) + 3 * pixels + 4 * patches : 0;
  return Preparer::bytes(canvas, size.width, size.height) + Counter::bytes(canvas) +
         Canvas::bytes(product.window(), product.product().tiles) +
         Layout(*product.bank(), scorer_settings(product.product(), settings)).bytes +
         MapMaker::bytes(canvas.rows, canvas.cols, canvas.stride) + RegionFinder::bytes(canvas) +
         (gathers(product) ? 4 * patches * canvas.dim : 0) + 8 * pixels + 17 * patches + views;
}

void Workspace::inspect(Request& request, const anoco_image& image) {
  times_ = {};
  product_->check_shape(image.width, image.height);
  if (!preparer_.fits(image.width, image.height))
    fail(ANOCO_BAD_PICTURE, "the picture is " + std::to_string(image.width) + "x" +
                                std::to_string(image.height) +
                                ", larger than the context was made for: see max_width and "
                                "max_height of anoco_context_options");
  {
    const Lap lap(times_.preprocess);
    placement_ = preparer_.prepare(image, pixels_.data());
    std::memcpy(counted_.data(), counter_.counted(placement_), size_t(patches()));
  }
  const float* features = nullptr;
  {
    const Lap lap(times_.backbone);
    features = canvas_.features(request, pixels_.data());
  }
  {
    const Lap lap(times_.scoring);
    score_patches(features, counted_.data(),
                  {energy_.data(), anchor_.data(), similarity_.data(), nullptr});
  }
  if (average_) average_views(request);
  const Lap lap(times_.map);
  take_off_usual();
  pool_energy();
  find_regions();
}

void Workspace::score_patches(const float* features, const uint8_t* counted, const Outputs& out) {
  const int64_t dim = product_->canvas().dim;
  const int64_t count = std::count(counted, counted + patches(), uint8_t{1});
  if (count < patches()) {
    float* next = gathered_.data();
    for (int64_t p = 0; p < patches(); ++p)
      if (counted[p]) next = std::copy_n(features + p * dim, dim, next);
    features = gathered_.data();
  }
  scorer_.score(features, count, out);
  if (count == patches()) return;
  scatter(counted, count, patches(), 0.0f, out.energy);
  if (out.anchor != nullptr) scatter(counted, count, patches(), int64_t{-1}, out.anchor);
  if (out.similarity != nullptr) scatter(counted, count, patches(), 0.0f, out.similarity);
}

void Workspace::average_views(Request& request) {
  const InputContract& canvas = product_->canvas();
  average_->start();
  average_->add(kIdentity, energy_.data(), counted_.data());
  for (const Affine& view : product_->product().views) {
    const uint8_t* seen = nullptr;
    {
      const Lap lap(times_.preprocess);
      warp(pixels_.data(), canvas.width, canvas.height, view, canvas.fill, warped_.data());
      seen = counter_.counted(placement_, view);
    }
    const float* features = nullptr;
    {
      const Lap lap(times_.backbone);
      features = canvas_.features(request, warped_.data());
    }
    const Lap lap(times_.scoring);
    if (std::find(seen, seen + patches(), uint8_t{1}) == seen + patches()) continue;
    score_patches(features, seen, {view_energy_.data(), nullptr, nullptr, nullptr});
    average_->add(view, view_energy_.data(), seen);
  }
  const Lap lap(times_.scoring);
  average_->finish(counted_.data(), energy_.data());
}

void Workspace::take_off_usual() {
  const std::vector<float>& usual = product_->usual();
  if (usual.empty()) return;
  for (int64_t p = 0; p < patches(); ++p)
    energy_[p] = counted_[p] ? std::max(energy_[p] - usual[size_t(p)], 0.0f) : 0.0f;
}

void Workspace::pool_energy() {
  std::array<float, 5> largest{};  // descending; energies are never negative
  int64_t count = 0;
  float peak = -1;
  for (int64_t p = 0; p < patches(); ++p) {
    if (!counted_[p]) continue;
    if (energy_[p] > peak) {
      peak = energy_[p];
      peak_ = p;
    }
    ++count;
    float value = energy_[p];
    for (float& place : largest)
      if (value > place) std::swap(value, place);
  }
  if (product_->product().pooling == Pooling::max) {
    score_ = peak;
    return;
  }
  double sum = 0;
  for (const float value : largest) sum += value;
  score_ = sum / double(std::min<int64_t>(count, int64_t(largest.size())));
}

void Workspace::find_regions() {
  map_maker_.make(energy_.data(), counted_.data(), map_.data());
  std::fill_n(outline_.data(), outline_.size(), uint8_t{0});
  region_count_ = 0;
  const double threshold = product_->threshold();
  if (threshold <= 0 || score_ <= threshold) return;
  regions_.find(energy_.data(), map_.data(), threshold, placement_, product_->product().min_area,
                outline_.data());
  region_count_ = regions_.count();
}

}  // namespace anoco
