#include "scorer/projection.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "scorer/bank.hpp"

namespace anoco {
namespace {

constexpr double kRoundoff = 1.0 / (1 << 24);
constexpr int64_t kSample = 2048;         // references that the basis is made from
constexpr int64_t kLeastDirections = 16;  // of a level
constexpr int kIterations = 4;  // each takes the basis 10 times closer on clustered features

// Pseudorandom numbers that are the same on every machine (xorshift).
class Noise {
 public:
  float next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return float(state_ >> 40) * 0x1p-23f - 1.0f;
  }

 private:
  uint64_t state_ = 0x9e3779b97f4a7c15u;
};

// Row vectors of one length.
class Vectors {
 public:
  Vectors(int64_t count, int64_t dim)
      : count_(count), dim_(dim), numbers_(count * dim), unused_(dim) {
    std::fill(numbers_.data(), numbers_.data() + count_ * dim_, 0.0f);
  }
  int64_t count() const { return count_; }
  int64_t dim() const { return dim_; }
  float* operator[](int64_t i) { return numbers_.data() + i * dim_; }
  const float* operator[](int64_t i) const { return numbers_.data() + i * dim_; }

  // Computes row i += weight other.
  void add(int64_t i, float weight, const float* other) {
    const void* row = other;
    k_.pull({1, &weight, &row}, 1.0f, (*this)[i], dim_, unused_.data(), (*this)[i]);
  }
  void orthonormalize(Noise& noise);

 private:
  const Kernels& k_ = kernels();
  int64_t count_, dim_;
  Buffer<float> numbers_, unused_;
};

// Gram-Schmidt, done twice because of cancellation. A vector that depends on the others is replaced
// by noise.
void Vectors::orthonormalize(Noise& noise) {
  for (int64_t i = 0; i < count_; ++i) {
    float* v = (*this)[i];
    for (;;) {
      const double before = k_.squares(v, dim_);
      for (int pass = 0; pass < 2; ++pass)
        for (int64_t b = 0; b < i; ++b) add(i, -k_.dot(v, (*this)[b], dim_), (*this)[b]);
      const double after = k_.squares(v, dim_);
      if (after > 1e-8 * before) {
        for (int64_t c = 0; c < dim_; ++c) v[c] = float(v[c] / std::sqrt(after));
        break;
      }
      for (int64_t c = 0; c < dim_; ++c) v[c] = noise.next();
    }
  }
}

// Returns the Frobenius norm of V^T V - I, which is not less than the spectral norm.
double skew(const float* basis, int64_t count, int64_t dim) {
  double squares = 0;
  for (int64_t a = 0; a < count; ++a)
    for (int64_t b = 0; b <= a; ++b) {
      double sum = a == b ? -1 : 0;
      for (int64_t c = 0; c < dim; ++c)
        sum += double(basis[a * dim + c]) * double(basis[b * dim + c]);
      squares += (a == b ? 1 : 2) * sum * sum;
    }
  return std::sqrt(squares);
}

// Computes out = left times a right side that `pack(column, width, into)` packs, nr columns at a
// time.
template <class Pack>
void multiply(const Vectors& left, Pack&& pack, Vectors& out) {
  const Kernels& k = kernels();
  const int64_t depth = left.dim(), panels = (left.count() + k.mr - 1) / k.mr;
  Buffer<float> rows(panels * k.mr * depth), right(k.nr * depth), corner(k.mr * k.nr);
  for (int64_t i = 0; i < left.count(); i += k.mr) {
    const float* from[kMostPanelRows];
    const int64_t height = std::min(k.mr, left.count() - i);
    for (int64_t r = 0; r < height; ++r) from[r] = left[i + r];
    k.pack_a(from, height, depth, rows.data() + i * depth);
  }
  for (int64_t j = 0; j < out.dim(); j += k.nr) {
    const int64_t width = std::min(k.nr, out.dim() - j);
    pack(j, width, right.data());
    for (int64_t i = 0; i < left.count(); i += k.mr) {
      for (int64_t at = 0; at < depth; at += kDepth)
        k.multiply(std::min(kDepth, depth - at), rows.data() + i * depth + at * k.mr,
                   right.data() + at * k.nr, corner.data(), k.nr, at > 0);
      for (int64_t r = 0; r < std::min(k.mr, left.count() - i); ++r)
        std::copy_n(corner.data() + r * k.nr, width, out[i + r] + j);
    }
  }
}

Vectors sample_directions(const Bank& bank) {
  Vectors sample(std::min(kSample, bank.rows()), bank.dim());
  Buffer<float> scratch(bank.dim());
  for (int64_t i = 0; i < sample.count(); ++i) {
    const int64_t j = i * bank.rows() / sample.count();
    sample.add(i, bank.inverse_norm(j), bank.row(j, scratch.data()));
  }
  return sample;
}

// Finds the directions of largest extent in a sample of the references, by subspace iteration.
Vectors find_basis(const Bank& bank, int64_t directions) {
  const Kernels& k = kernels();
  const int64_t dim = bank.dim();
  const Vectors sample = sample_directions(bank);
  const auto pack = [&](int64_t row, int64_t count, float* out) {
    k.pack_b(sample[row], dim, count, dim, out);
  };
  const auto slice = [&](int64_t column, int64_t count, float* out) {
    k.slice_b(sample[0] + column, dim, count, sample.count(), out);
  };
  Vectors basis(directions, dim), lengths(directions, sample.count());
  Noise noise;
  basis.orthonormalize(noise);  // zeros become noise
  for (int iteration = 0; iteration < kIterations; ++iteration) {
    multiply(basis, pack, lengths);
    multiply(lengths, slice, basis);
    basis.orthonormalize(noise);
  }
  return basis;
}

}  // namespace

int64_t Projection::choose(int64_t rows, int64_t dim) {
  // Below this size the product itself is so cheap that finishing the rows takes most of the time.
  if (dim < 256 || rows < 1024) return 0;
  constexpr int64_t kMostFloats = 4000000;  // 16 MB of sketches, if so few are enough
  int64_t directions = std::min<int64_t>(dim / 4, 256);
  while (directions * rows > kMostFloats && directions > 64) directions /= 2;
  return directions;
}

Projection::Projection(const Bank& bank, int64_t directions) {
  if (directions > 0) *this = Projection(bank, directions, find_basis(bank, directions)[0]);
}

Projection::Projection(const Bank& bank, int64_t directions, const float* basis)
    : dim_(bank.dim()) {
  const Kernels& k = kernels();
  set_levels(directions, skew(basis, directions, dim_));
  padded_ = (directions + k.nr - 1) / k.nr * k.nr;
  basis_ = Buffer<float>(padded_ * dim_);
  for (int64_t c = 0; c < directions; c += k.nr)
    k.pack_b(basis + c * dim_, dim_, std::min(k.nr, directions - c), dim_,
             basis_.data() + c * dim_);
  sketch_bank(bank);
}

void Projection::set_levels(int64_t directions, double eta) {
  const auto off = [](double terms) { return terms * kRoundoff / (1 - terms * kRoundoff); };
  const double chain = off(double(kDepth + dim_ / 16 + 16));
  int64_t width = 0, before = 0;
  for (const int64_t part : {4, 2, 1}) {
    const int64_t k = directions / part;
    if (part > 1 && k < kLeastDirections) continue;
    width += k - before + 2;
    before = k;
    const double delta = std::sqrt(double(k) * (1 + eta)) * chain;
    const double most = std::sqrt(1 + eta) + delta;
    const double slack = 2 * most * delta + most * most * eta;
    // The allowance is itself a term of the chain, hence the division. The factor covers rounding
    // it to float32, and rho, which is rounded up.
    const double sum = off(double(width + 1));
    const double allowance = (slack + chain + sum * (most * most + slack)) / (1 - sum);
    levels_.push_back({k, width, slack, float((1 + 8 * kRoundoff) * allowance)});
  }
}

void Projection::sketch(int64_t level, bool query, const float* products, float inverse_norm,
                        float* out) const {
  double squares = 0;
  int64_t c = 0;
  for (int64_t l = 0; l <= level; ++l) {
    const Level& at = levels_[size_t(l)];
    for (; c < at.directions; ++c) {
      const float p = products[c] * inverse_norm;
      squares += double(p) * double(p);
      *out++ = p;
    }
    const double rho = std::sqrt(std::max(0.0, 1 - squares) + at.slack);
    const bool used = !query || l == level;
    *out++ = used ? float(rho * (1 + 4 * kRoundoff)) : 0.0f;
    *out++ = !used ? 0.0f : query ? 1.0f : at.allowance;
  }
}

void Projection::sketch_bank(const Bank& bank) {
  const Kernels& k = kernels();
  const int64_t rows = bank.rows();
  Buffer<float> panel(k.mr * dim_), left(k.mr * dim_);
  Buffer<float> products(k.mr * padded_), flat(k.nr * width());
  sketches_ = Buffer<float>((rows + k.nr - 1) / k.nr * k.nr * width());
  for (int64_t j = 0; j < rows; j += k.nr) {
    const int64_t count = std::min(k.nr, rows - j);
    for (int64_t i = 0; i < count; i += k.mr) {
      const float* from[kMostPanelRows];
      const int64_t height = std::min(k.mr, count - i);
      for (int64_t r = 0; r < height; ++r) from[r] = bank.row(j + i + r, panel.data() + r * dim_);
      k.pack_a(from, height, dim_, left.data());
      project(levels() - 1, left.data(), products.data());
      for (int64_t r = 0; r < height; ++r)
        sketch(levels() - 1, false, products.data() + r * padded_, bank.inverse_norm(j + i + r),
               flat.data() + (i + r) * width());
    }
    k.pack_b(flat.data(), width(), count, width(), sketches_.data() + j * width());
  }
}

void Projection::project(int64_t level, const float* left, float* products) const {
  const Kernels& k = kernels();
  for (int64_t depth = 0; depth < dim_; depth += kDepth)
    for (int64_t c = 0; c < directions(level); c += k.nr)
      k.multiply(std::min(kDepth, dim_ - depth), left + depth * k.mr,
                 basis_.data() + c * dim_ + depth * k.nr, products + c, padded_, depth > 0);
}

}  // namespace anoco
