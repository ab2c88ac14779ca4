#include "gpu/product_trial.hpp"

#include <algorithm>
#include <chrono>
#include <vector>

#include "gpu/cublas.hpp"
#include "gpu/patch_scorer.hpp"
#include "kernels/kernels.hpp"

namespace anoco::gpu {
namespace {

constexpr int kWarmUp = 3;    // kernels are loaded, a graph is captured, and it runs
constexpr int kMeasured = 9;  // times on the simulated driver mean nothing, so one is enough

std::vector<float> row_of(const anoco_bank_options& bank, int64_t row) {
  std::vector<float> out(static_cast<size_t>(bank.dim));
  const int64_t first = row % bank.rows * bank.dim;
  if (bank.type == ANOCO_FLOAT16)
    kernels().widen(static_cast<const uint16_t*>(bank.features) + first, bank.dim, out.data());
  else
    std::copy_n(static_cast<const float*>(bank.features) + first, bank.dim, out.begin());
  return out;
}

// Patches that resemble some of the bank, as those of pictures do, and are equal to none.
std::vector<float> make_query(const anoco_bank_options& bank, int64_t rows) {
  std::vector<float> query;
  query.reserve(size_t(rows * bank.dim));
  for (int64_t i = 0; i < rows; ++i) {
    const std::vector<float> near = row_of(bank, i), up = row_of(bank, i + 17),
                             down = row_of(bank, i + 31);
    for (size_t k = 0; k < near.size(); ++k) query.push_back(near[k] + 0.4f * (up[k] - down[k]));
  }
  return query;
}

double measure(const SharedDevice& device, const anoco_bank_options& bank, const Settings& settings,
               Factors factors, ProductPath path, const std::vector<float>& query, int64_t rows) {
  PatchScorer scorer(std::make_shared<const DeviceBank>(device, bank, factors, path), settings,
                     rows);
  std::vector<float> energy(static_cast<size_t>(rows));
  const int measured = driver().simulated ? 1 : kMeasured,
            warm_up = driver().simulated ? 1 : kWarmUp;
  std::vector<double> times;
  for (int run = 0; run < warm_up + measured; ++run) {
    const auto begun = std::chrono::steady_clock::now();
    scorer.score(query.data(), Operands::float32, rows, {energy.data(), nullptr, nullptr, nullptr});
    const std::chrono::duration<double, std::milli> taken =
        std::chrono::steady_clock::now() - begun;
    if (run >= warm_up) times.push_back(taken.count());
  }
  std::nth_element(times.begin(), times.begin() + measured / 2, times.end());
  return times[size_t(measured / 2)];
}

}  // namespace

ProductTimes measure_products(const SharedDevice& device, const anoco_bank_options& bank,
                              const Settings& settings, Factors factors, int64_t rows) {
  const std::vector<float> query = make_query(bank, rows);
  const auto time = [&](ProductPath path) {
    return measure(device, bank, settings, factors, path, query, rows);
  };
  ProductTimes times;
  if (has_cublas()) times.cublas = time(ProductPath::cublas);
  times.own = time(ProductPath::own);
  return times;
}

}  // namespace anoco::gpu
