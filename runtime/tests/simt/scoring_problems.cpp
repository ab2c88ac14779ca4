#include "scoring_problems.hpp"

#include <random>

namespace reference {
namespace {

std::mt19937 generator(7);

}  // namespace

float normal() { return std::normal_distribution<float>()(generator); }

std::vector<float> normals(std::size_t count, float scale) {
  std::vector<float> out(count);
  for (float& x : out) x = scale * normal();
  return out;
}

Problem empty(int rows, int refs, int dim) {
  Problem p;
  p.rows = rows;
  p.refs = refs;
  p.dim = dim;
  p.query.resize(size_t(rows) * size_t(dim));
  p.bank.resize(size_t(refs) * size_t(dim));
  return p;
}

Problem clustered(int rows, int refs, int dim) {
  Problem p = empty(rows, refs, dim);
  constexpr int kCentres = 5;
  const auto centres = normals(size_t(kCentres) * size_t(dim));
  const auto near = [&](std::vector<float>& out, float spread) {
    for (size_t i = 0; i < out.size(); i += size_t(dim)) {
      const size_t centre = generator() % kCentres * size_t(dim);
      for (size_t k = 0; k < size_t(dim); ++k) out[i + k] = centres[centre + k] + spread * normal();
    }
  };
  near(p.bank, 0.3f);
  near(p.query, 0.5f);
  return p;
}

Problem crowded(int rows, int refs, int dim) {
  Problem p = empty(rows, refs, dim);
  const auto base = normals(size_t(dim));
  for (size_t i = 0; i < p.bank.size(); ++i) p.bank[i] = base[i % size_t(dim)] + 0.05f * normal();
  for (size_t i = 0; i < p.query.size(); ++i) p.query[i] = 0.3f * base[i % size_t(dim)] + normal();
  return p;
}

Problem alike(int rows, int refs, int dim) {
  Problem p = empty(rows, refs, dim);
  const size_t width = size_t(dim);
  const auto base = normals(width), query = normals(width, 0.1f);
  for (size_t i = 0; i < p.bank.size(); ++i)
    p.bank[i] =
        i / width < 150 ? base[i % width] + 0.05f * normal() : 0.5f * normal() - base[i % width];
  for (size_t i = 0; i < p.query.size(); ++i)
    p.query[i] = 0.3f * base[i % width] + query[i % width];
  return p;
}

}  // namespace reference
