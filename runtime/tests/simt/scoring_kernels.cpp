#include "scoring_kernels.hpp"

#include <algorithm>

#include "run.hpp"

namespace simt {

using reference::Problem;

std::vector<uint16_t> halves_of(const std::vector<float>& numbers) {
  std::vector<uint16_t> out(numbers.size());
  run_each("anoco_to_half", int64_t(numbers.size()), numbers.data(), (long long)numbers.size(),
           out.data());
  return out;
}

void round_to_half(std::vector<float>& numbers) {
  const auto halves = halves_of(numbers);
  run_each("anoco_to_float", int64_t(halves.size()), halves.data(), (long long)halves.size(),
           numbers.data());
}

namespace {

using Ranked = unsigned long long;  // as in reduce.cuh

int64_t product_tiles(int count) { return blocks(count, ANOCO_GPU_PRODUCT_TILE); }

// Approximates the result of the GEMM, which adds in float32 in many parallel sums.
std::vector<float> products_of(const std::vector<float>& a, const std::vector<float>& b, int dim) {
  std::vector<float> out;
  for (size_t i = 0; i < a.size(); i += size_t(dim))
    for (size_t j = 0; j < b.size(); j += size_t(dim)) {
      double sum = 0;
      for (size_t k = 0; k < size_t(dim); ++k) sum += double(a[i + k]) * double(b[j + k]);
      out.push_back(float(sum));
    }
  return out;
}

// Finishes the list of dense rows, `room` of them at a time; so many blocks do.
template <class Number>
void finish_dense_rows(const Problem& p, const Number* query, const Number* bank, float* products,
                       const float* gram, const std::vector<int>& list,
                       std::vector<unsigned>& limit, bool packed, int room, int blocks,
                       Result& out) {
  const bool half = sizeof(Number) == 2;
  const auto name = [&](const char* full, const char* short_) { return half ? short_ : full; };
  const float *qn = out.q_norm.data(), *rn = out.r_norm.data();
  const int *anchor = out.anchor.data(), *length = &out.dense;
  std::vector<double> totals(static_cast<size_t>(room));
  std::vector<float> mean(size_t(room) * size_t(p.dim));
  for (int done = 0; done < p.rows; done += room) {
    const int* rows = list.data() + done;
    unsigned* const limits = limit.data() + done;
    if (packed)
      run_rows("anoco_products_f16", blocks, query, rows, length, done, room, bank, p.refs, p.dim,
               products);
    run_rows(name("anoco_dense_limit_f32", "anoco_dense_limit_f16"), blocks, (const float*)products,
             qn, bank, rn, gram, anchor, (const float*)out.best.data(), rows, length, done, room,
             int(packed), p.refs, p.dim, limits);
    run_rows("anoco_dense_weights", blocks, products, qn, rn, anchor, (const unsigned*)limits, rows,
             length, done, room, int(packed), float(p.floor), p.refs, totals.data(),
             out.neighbors.data());
    run_rows(name("anoco_dense_pull_f32", "anoco_dense_pull_f16"), blocks, (const float*)products,
             bank, rows, length, done, room, int(packed), p.refs, p.dim, mean.data());
    run_rows(name("anoco_dense_energy_f32", "anoco_dense_energy_f16"), blocks, query, qn,
             (const float*)mean.data(), (const double*)totals.data(), rows, length, done, room,
             p.lambda, p.dim, p.metric, out.energy.data());
  }
}

// Runs the kernels after norms and products. Without products, those of FP16 features are not kept,
// and a few dense rows are finished at a time.
template <class Number>
void find_scores(const Problem& p, const Number* query, const Number* bank,
                 std::vector<float> products, const float* gram, int blocks, Result& out) {
  const bool half = sizeof(Number) == 2, fused = products.empty();
  const auto name = [&](const char* full, const char* short_) { return half ? short_ : full; };
  const size_t rows = size_t(p.rows);
  const size_t groups = (size_t(p.refs) + ANOCO_GPU_GROUP - 1) / ANOCO_GPU_GROUP;
  const int room = fused ? std::min(p.rows, 33) : p.rows;
  std::vector<Ranked> candidates(rows * groups * 2), listed(rows * ANOCO_GPU_LISTED);
  std::vector<float> again(fused ? rows * ANOCO_GPU_AGAIN * ANOCO_GPU_GROUP : 1);
  std::vector<int> dense_rows(rows);
  std::vector<unsigned> limit(rows);
  const float *qn = out.q_norm.data(), *rn = out.r_norm.data();
  const float* s = fused ? nullptr : products.data();
  out.dense = 0;
  if (fused)
    run_rows("anoco_qr_top2_f16", int(product_tiles(p.rows) * product_tiles(p.refs)), query, qn,
             bank, rn, p.rows, p.refs, p.dim, candidates.data());
  else
    run_rows("anoco_candidates", p.rows, s, qn, rn, p.rows, p.refs, candidates.data());
  run_warps(name("anoco_walk_f32", "anoco_walk_f16"), p.rows, s, candidates.data(), query, qn, bank,
            rn, gram, p.rows, p.refs, p.dim, out.anchor.data(), out.best.data(), listed.data(),
            out.neighbors.data(), dense_rows.data(), limit.data(), &out.dense, again.data());
  run_rows(name("anoco_pull_energy_f32", "anoco_pull_energy_f16"), p.rows, query, qn, bank, rn,
           (const Ranked*)listed.data(), (const int*)out.neighbors.data(), p.lambda, float(p.floor),
           p.rows, p.dim, p.metric, out.energy.data());
  products.resize(size_t(room) * size_t(p.refs));
  finish_dense_rows(p, query, bank, products.data(), gram, dense_rows, limit, fused, room, blocks,
                    out);
}

// All products of rows with the bank, by products.cu.
std::vector<float> own_products(const Problem& p, const float* left, int rows, const float* bank) {
  std::vector<float> out(size_t(rows) * size_t(p.refs));
  run_rows("anoco_products_f32", 3, left, rows, bank, p.refs, p.dim, out.data());
  return out;
}

std::vector<float> own_products(const Problem& p, const uint16_t* left, int rows,
                                const uint16_t* bank) {
  std::vector<float> out(size_t(rows) * size_t(p.refs));
  run_rows("anoco_products_f16", 3, left, (const int*)nullptr, (const int*)nullptr, 0, rows, bank,
           p.refs, p.dim, out.data());
  return out;
}

template <class Number>
Result emulate(const Problem& p, const Number* query, const Number* bank, bool gram, Products how) {
  const bool half = sizeof(Number) == 2;
  const auto name = [&](const char* full, const char* short_) { return half ? short_ : full; };
  Result out(p);
  int bad = ANOCO_GPU_NO_BAD_ROW;
  run_rows(name("anoco_norms_f32", "anoco_norms_f16"), p.rows, query, p.rows, p.dim,
           out.q_norm.data(), &bad);
  run_rows(name("anoco_norms_f32", "anoco_norms_f16"), p.refs, bank, p.refs, p.dim,
           out.r_norm.data(), &bad);
  CHECK(bad == ANOCO_GPU_NO_BAD_ROW);
  const bool own = how == Products::own;
  std::vector<float> products, others;
  if (!own)
    products = products_of(p.query, p.bank, p.dim);
  else if (!half)
    products = own_products(p, query, p.rows, bank);
  if (gram) others = own ? own_products(p, bank, p.refs, bank) : products_of(p.bank, p.bank, p.dim);
  find_scores(p, query, bank, products, gram ? others.data() : nullptr, gram ? 2 : 5, out);
  return out;
}

}  // namespace

Result emulate(const Problem& p, bool half, bool gram, Products products) {
  if (!half) return emulate(p, p.query.data(), p.bank.data(), gram, products);
  const auto query = halves_of(p.query), bank = halves_of(p.bank);
  return emulate(p, query.data(), bank.data(), gram, products);
}

Result scores_of(const Problem& p, const std::vector<float>& products,
                 const std::vector<float>& gram) {
  Result out(p);
  out.q_norm.assign(out.q_norm.size(), 1.0f);
  out.r_norm.assign(out.r_norm.size(), 1.0f);
  find_scores(p, p.query.data(), p.bank.data(), products, gram.empty() ? nullptr : gram.data(), 3,
              out);
  return out;
}

}  // namespace simt
