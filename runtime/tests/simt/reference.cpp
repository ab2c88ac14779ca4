#include "reference.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace reference {
namespace {

using Vector = std::vector<double>;

constexpr double kNone = -std::numeric_limits<double>::infinity();
constexpr double kFar = std::numeric_limits<double>::infinity();
constexpr double kCancellation = 1e-4;  // as there

Vector row_of(const std::vector<float>& matrix, int row, int dim) {
  const auto start = matrix.begin() + std::ptrdiff_t(row) * dim;
  return Vector(start, start + dim);
}

double dot(const Vector& a, const Vector& b) {
  double sum = 0;
  for (size_t k = 0; k < a.size(); ++k) sum += a[k] * b[k];
  return sum;
}

double length(const Vector& a) { return std::sqrt(dot(a, a)); }

struct Retrieval {
  Vector s, a;
  int anchor = 0;
  std::vector<bool> consistent, neighbour;
  double t = kNone;
};

Retrieval retrieve(const Problem& p, const Vector& q) {
  Retrieval found;
  std::vector<Vector> bank;
  for (int j = 0; j < p.refs; ++j) bank.push_back(row_of(p.bank, j, p.dim));
  Vector lengths;
  for (const Vector& r : bank) lengths.push_back(length(r));
  const double norm = length(q);
  for (size_t j = 0; j < bank.size(); ++j) found.s.push_back(dot(q, bank[j]) / (norm * lengths[j]));
  found.anchor = int(std::max_element(found.s.begin(), found.s.end()) - found.s.begin());
  const Vector& own = bank[size_t(found.anchor)];
  const double own_length = lengths[size_t(found.anchor)];
  const double best = found.s[size_t(found.anchor)];
  for (int j = 0; j < p.refs; ++j) {
    found.a.push_back(dot(own, bank[size_t(j)]) / (own_length * lengths[size_t(j)]));
    found.consistent.push_back(j == found.anchor || found.a.back() > best);
    if (!found.consistent.back()) found.t = std::max(found.t, found.s[size_t(j)]);
  }
  for (int j = 0; j < p.refs; ++j)
    found.neighbour.push_back(j == found.anchor || found.s[size_t(j)] > found.t);
  return found;
}

double margin_of(const Retrieval& found) {
  const double best = found.s[size_t(found.anchor)];
  double margin = kFar;
  for (size_t j = 0; j < found.s.size(); ++j) {
    if (int(j) == found.anchor) continue;
    margin = std::min(margin, best - found.s[j]);
    if (found.s[j] >= found.t) margin = std::min(margin, std::abs(found.a[j] - best));
    if (found.consistent[j] && found.t != kNone)
      margin = std::min(margin, std::abs(found.s[j] - found.t));
  }
  return margin;
}

}  // namespace

Patch solve(const Problem& p, int row) {
  const Vector q = row_of(p.query, row, p.dim);
  const Retrieval found = retrieve(p, q);
  const double norm = length(q);
  Patch patch{found.anchor, 0, found.s[size_t(found.anchor)], 0, norm, margin_of(found)};
  Vector drift(q.size()), moved(q.size());
  double d = 0, lengths = p.lambda * norm;
  for (size_t k = 0; k < q.size(); ++k) moved[k] = p.lambda * q[k];
  for (int j = 0; j < p.refs; ++j) {
    if (!found.neighbour[size_t(j)]) continue;
    ++patch.neighbors;
    const Vector r = row_of(p.bank, j, p.dim);
    const double r_norm = length(r), alpha = 2 * norm * r_norm / (norm + r_norm);
    const double w = std::max(found.s[size_t(j)], p.floor) * alpha;
    d += w;
    lengths += w * r_norm;
    for (size_t k = 0; k < q.size(); ++k) {
      drift[k] += w * (r[k] - q[k]);
      moved[k] += w * r[k];
    }
  }
  for (double& x : drift) x /= p.lambda + d;
  const double size = length(moved);
  double turn = size == 0 ? 1 : 0;
  for (size_t k = 0; k < q.size() && size != 0; ++k) {
    const double chord = moved[k] / size - q[k] / norm;
    turn += chord * chord / 2;
  }
  const double factors[] = {dot(drift, drift) * turn, dot(drift, drift), turn};
  patch.energy = factors[p.metric];
  patch.margin = std::min(patch.margin, kCancellation * size / lengths);
  return patch;
}

}  // namespace reference
