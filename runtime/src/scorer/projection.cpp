#include "scorer/projection.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "scorer/bank.hpp"

namespace anoco {
namespace {

constexpr double kRoundoff = 1.0 / (1 << 24);
constexpr int64_t kSample = 512;  // references that the basis is made from
constexpr int kIterations = 4;    // each takes the basis 10 times closer on clustered features

// The same numbers on every machine: xorshift.
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
    clear();
  }
  void clear() { std::fill(numbers_.data(), numbers_.data() + count_ * dim_, 0.0f); }
  int64_t count() const { return count_; }
  float* operator[](int64_t i) { return numbers_.data() + i * dim_; }
  const float* operator[](int64_t i) const { return numbers_.data() + i * dim_; }

  // Row i += weight other.
  void add(int64_t i, float weight, const float* other) {
    const void* row = other;
    k_.pull({1, &weight, &row}, 1.0f, (*this)[i], dim_, unused_.data(), (*this)[i]);
  }
  void swap(Vectors& other) { std::swap(numbers_, other.numbers_); }
  void orthonormalise(Noise& noise);

 private:
  const Kernels& k_ = kernels();
  int64_t count_, dim_;
  Buffer<float> numbers_, unused_;
};

// Gram-Schmidt, twice for what cancels. A vector that depends on the others becomes noise.
void Vectors::orthonormalise(Noise& noise) {
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

// The Frobenius norm of V^T V - I, which is no less than the spectral one.
double skew(const Vectors& basis, int64_t dim) {
  double squares = 0;
  for (int64_t a = 0; a < basis.count(); ++a)
    for (int64_t b = 0; b <= a; ++b) {
      double sum = a == b ? -1 : 0;
      for (int64_t c = 0; c < dim; ++c) sum += double(basis[a][c]) * double(basis[b][c]);
      squares += (a == b ? 1 : 2) * sum * sum;
    }
  return std::sqrt(squares);
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

}  // namespace

int64_t Projection::choose(int64_t rows, int64_t dim) {
  // Below this the product itself is so cheap that finishing rows takes most of the time.
  if (dim < 256 || rows < 1024) return 0;
  return std::min<int64_t>(dim / 16, 64);
}

Projection::Projection(const Bank& bank, int64_t directions)
    : dim_(bank.dim()), directions_(directions) {
  if (directions_ == 0) return;
  make_basis(bank);
  sketch_bank(bank);
}

// The directions of most length in a sample of the references, by subspace iteration.
void Projection::make_basis(const Bank& bank) {
  const Kernels& k = kernels();
  const Vectors sample = sample_directions(bank);
  Vectors basis(directions_, dim_), next(directions_, dim_);
  Noise noise;
  basis.orthonormalise(noise);  // zeros become noise
  for (int iteration = 0; iteration < kIterations; ++iteration) {
    next.clear();
    for (int64_t i = 0; i < sample.count(); ++i)
      for (int64_t c = 0; c < directions_; ++c)
        next.add(c, k.dot(basis[c], sample[i], dim_), sample[i]);
    next.orthonormalise(noise);
    basis.swap(next);
  }
  set_allowance(skew(basis, dim_));
  padded_ = (directions_ + k.nr - 1) / k.nr * k.nr;
  basis_ = Buffer<float>(padded_ * dim_);
  for (int64_t c = 0; c < directions_; c += k.nr)
    k.pack_b(basis[c], dim_, std::min(k.nr, directions_ - c), dim_, basis_.data() + c * dim_);
}

void Projection::set_allowance(double eta) {
  const double chain = double(kDepth + dim_ / 16 + 16) * kRoundoff;
  const double delta = 1.01 * std::sqrt(double(directions_)) * chain;
  slack_ = 2.1 * delta + 1.1 * eta;
  allowance_ = float(1.03 * (eta + 2 * delta) + chain + 1.1 * double(width() + 1) * kRoundoff);
}

void Projection::finish(const float* products, float inverse_norm, float last,
                        float* sketch) const {
  double squares = 0;
  for (int64_t c = 0; c < directions_; ++c) {
    sketch[c] = products[c] * inverse_norm;
    squares += double(sketch[c]) * double(sketch[c]);
  }
  const double rho = std::sqrt(std::max(0.0, 1 - squares) + slack_);
  sketch[directions_] = float(rho * (1 + 4 * kRoundoff));
  sketch[directions_ + 1] = last;
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
      project(left.data(), products.data());
      for (int64_t r = 0; r < height; ++r)
        finish(products.data() + r * padded_, bank.inverse_norm(j + i + r), allowance_,
               flat.data() + (i + r) * width());
    }
    k.pack_b(flat.data(), width(), count, width(), sketches_.data() + j * width());
  }
}

void Projection::project(const float* left, float* products) const {
  const Kernels& k = kernels();
  for (int64_t depth = 0; depth < dim_; depth += kDepth)
    for (int64_t c = 0; c < padded_; c += k.nr)
      k.multiply(std::min(kDepth, dim_ - depth), left + depth * k.mr,
                 basis_.data() + c * dim_ + depth * k.nr, products + c, padded_, depth > 0);
}

}  // namespace anoco
