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

std::vector<float> widened(const std::vector<uint16_t>& halves) {
  std::vector<float> out(halves.size());
  run_each("anoco_to_float", int64_t(halves.size()), halves.data(), (long long)halves.size(),
           out.data());
  return out;
}

// What products are computed from, with the norms of the query and of the bank: of half precision,
// or, if that is null, of float32.
struct FactorRows {
  const uint16_t *query, *bank;
  const float *q_norm, *r_norm;
  int dim;
};

// Finishes the list of dense rows, `room` of them at a time; so many blocks do.
template <class Number>
void finish_dense_rows(const Problem& p, const Number* query, const Number* bank,
                       const FactorRows& factors, float* products, const float* gram,
                       const std::vector<int>& list, std::vector<unsigned>& limit, bool packed,
                       int room, int blocks, Result& out) {
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
      run_rows("anoco_products_f16", blocks, factors.query, rows, length, done, room, factors.bank,
               p.refs, factors.dim, products);
    run_rows(name("anoco_dense_limit_f32", "anoco_dense_limit_f16"), blocks, (const float*)products,
             factors.q_norm, factors.r_norm, bank, gram != nullptr ? factors.r_norm : rn, gram,
             anchor, (const float*)out.best.data(), rows, length, done, room, int(packed), p.refs,
             p.dim, limits);
    run_rows("anoco_dense_weights", blocks, products, qn, rn, factors.q_norm, factors.r_norm,
             anchor, (const unsigned*)limits, rows, length, done, room, int(packed), float(p.floor),
             p.refs, totals.data(), out.neighbors.data());
    run_rows(name("anoco_dense_pull_f32", "anoco_dense_pull_f16"), blocks, (const float*)products,
             bank, rows, length, done, room, int(packed), p.refs, p.dim, mean.data());
    run_rows(name("anoco_dense_energy_f32", "anoco_dense_energy_f16"), blocks, query, qn,
             (const float*)mean.data(), (const double*)totals.data(), rows, length, done, room,
             p.lambda, p.dim, p.metric, out.energy.data());
  }
}

// Runs the kernels after norms and products. Without products, those of factors of half precision
// are not kept, and a few dense rows are finished at a time.
template <class Number>
void find_scores(const Problem& p, const Number* query, const Number* bank,
                 const FactorRows& factors, std::vector<float> products, const float* gram,
                 int blocks, Result& out) {
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
    run_rows("anoco_qr_top2_f16", int(product_tiles(p.rows) * product_tiles(p.refs)), factors.query,
             factors.q_norm, factors.bank, factors.r_norm, p.rows, p.refs, factors.dim,
             candidates.data());
  else
    run_rows("anoco_candidates", p.rows, s, factors.q_norm, factors.r_norm, p.rows, p.refs,
             candidates.data());
  run_warps(name("anoco_walk_f32", "anoco_walk_f16"), p.rows, s, candidates.data(), query, qn, bank,
            rn, factors.query, factors.q_norm, factors.bank, factors.r_norm, gram, p.rows, p.refs,
            p.dim, factors.dim, out.anchor.data(), out.best.data(), listed.data(),
            out.neighbors.data(), dense_rows.data(), limit.data(), &out.dense, again.data());
  run_rows(name("anoco_pull_energy_f32", "anoco_pull_energy_f16"), p.rows, query, qn, bank, rn,
           (const Ranked*)listed.data(), (const int*)out.neighbors.data(), p.lambda, float(p.floor),
           p.rows, p.dim, p.metric, out.energy.data());
  products.resize(size_t(room) * size_t(p.refs));
  finish_dense_rows(p, query, bank, factors, products.data(), gram, dense_rows, limit, fused, room,
                    blocks, out);
}

// All products of rows with the bank, by products.cu.
std::vector<float> own_products(const float* left, int rows, const float* bank, int refs, int dim) {
  std::vector<float> out(size_t(rows) * size_t(refs));
  run_rows("anoco_products_f32", 3, left, rows, bank, refs, dim, out.data());
  return out;
}

std::vector<float> own_products(const uint16_t* left, int rows, const uint16_t* bank, int refs,
                                int dim) {
  std::vector<float> out(size_t(rows) * size_t(refs));
  run_rows("anoco_products_f16", 3, left, (const int*)nullptr, (const int*)nullptr, 0, rows, bank,
           refs, dim, out.data());
  return out;
}

template <class Number>
Result find_norms(const Problem& p, const Number* query, const Number* bank) {
  const char* name = sizeof(Number) == 2 ? "anoco_norms_f16" : "anoco_norms_f32";
  Result out(p);
  int bad = ANOCO_GPU_NO_BAD_ROW;
  run_rows(name, p.rows, query, p.rows, p.dim, out.q_norm.data(), &bad);
  run_rows(name, p.refs, bank, p.refs, p.dim, out.r_norm.data(), &bad);
  CHECK(bad == ANOCO_GPU_NO_BAD_ROW);
  return out;
}

// The features are what is multiplied.
template <class Number>
Result emulate(const Problem& p, const Number* query, const Number* bank, bool gram, Products how) {
  Result out = find_norms(p, query, bank);
  const bool own = how == Products::own;
  FactorRows factors = {nullptr, nullptr, out.q_norm.data(), out.r_norm.data(), 0};
  if constexpr (sizeof(Number) == 2) factors = {query, bank, factors.q_norm, factors.r_norm, p.dim};
  std::vector<float> products, others;
  if (!own)
    products = products_of(p.query, p.bank, p.dim);
  else if (factors.query == nullptr)
    products = own_products(query, p.rows, bank, p.refs, p.dim);
  if (gram)
    others =
        own ? own_products(bank, p.refs, bank, p.refs, p.dim) : products_of(p.bank, p.bank, p.dim);
  find_scores(p, query, bank, factors, products, gram ? others.data() : nullptr, gram ? 2 : 5, out);
  return out;
}

Result emulate_parts(const Problem& p, bool gram, Products how) {
  Result out = find_norms(p, p.query.data(), p.bank.data());
  out.eps = 3.5e-6;
  const Parts query = parts_of(p.query, out.q_norm, p.dim, false);
  const Parts bank = parts_of(p.bank, out.r_norm, p.dim, true);
  const bool own = how == Products::own;
  std::vector<float> products, others;
  if (!own) products = products_of(widened(query.rows), widened(bank.rows), query.dim);
  if (gram) {
    const Parts left = parts_of(p.bank, out.r_norm, p.dim, false);
    others = own ? own_products(left.rows.data(), p.refs, bank.rows.data(), p.refs, left.dim)
                 : products_of(widened(left.rows), widened(bank.rows), left.dim);
  }
  const FactorRows factors = {query.rows.data(), bank.rows.data(), query.norms.data(),
                              bank.norms.data(), query.dim};
  find_scores(p, p.query.data(), p.bank.data(), factors, products, gram ? others.data() : nullptr,
              gram ? 2 : 5, out);
  return out;
}

}  // namespace

Parts parts_of(const std::vector<float>& rows, const std::vector<float>& norms, int dim,
               bool of_bank) {
  const int part = int(blocks(dim, ANOCO_GPU_PIECE)) * ANOCO_GPU_PIECE;
  Parts out{std::vector<uint16_t>(norms.size() * 3 * size_t(part)),
            std::vector<float>(norms.size()), 3 * part};
  run_rows("anoco_parts_f32", int(norms.size()), rows.data(), norms.data(), int(norms.size()), dim,
           part, int(of_bank), out.rows.data(), out.norms.data());
  return out;
}

Result emulate(const Problem& p, Factors factors, bool gram, Products products) {
  if (factors == Factors::parts) return emulate_parts(p, gram, products);
  if (factors == Factors::plain) return emulate(p, p.query.data(), p.bank.data(), gram, products);
  const auto query = halves_of(p.query), bank = halves_of(p.bank);
  return emulate(p, query.data(), bank.data(), gram, products);
}

Result scores_of(const Problem& p, const std::vector<float>& products,
                 const std::vector<float>& gram) {
  Result out(p);
  out.q_norm.assign(out.q_norm.size(), 1.0f);
  out.r_norm.assign(out.r_norm.size(), 1.0f);
  const FactorRows factors = {nullptr, nullptr, out.q_norm.data(), out.r_norm.data(), 0};
  find_scores(p, p.query.data(), p.bank.data(), factors, products,
              gram.empty() ? nullptr : gram.data(), 3, out);
  return out;
}

}  // namespace simt
