#include <cmath>

#include "backends/onednn/delta_rows.h"
#include "backends/onednn/delta_rule.h"

namespace temper::backends {
namespace {

constexpr int64_t kSolveBlock = 16;  // rows that are solved one by one; the others are products

// x /= sqrt(Σ x² + eps), row by row; scales are the factors.
void norm_rows(float* x, int64_t rows, int64_t size, float eps, float* scales) {
  for (int64_t row = 0; row < rows; ++row, x += size) {
    scales[row] = 1 / std::sqrt(delta_rows::dot(x, x, size) + eps);
    delta_rows::scale(x, scales[row], x, size);
  }
}

// u := (I - N)⁻¹ u, N strictly lower triangular.
void solve(const float* n, float* u, int64_t size, int64_t width) {
  for (int64_t begin = 0; begin < size; begin += kSolveBlock) {
    const int64_t end = std::min(size, begin + kSolveBlock);
    if (begin > 0)
      delta_product({n + begin * kDeltaStride, kDeltaStride}, {u, width}, {end - begin, width, begin},
                    u + begin * width, width, true);
    delta_rows::solve({n, kDeltaStride, 1, begin, end}, u, width);
  }
}

}  // namespace

std::vector<DeltaFamily> delta_families(const ops::Documents& documents) {
  std::vector<DeltaFamily> families;
  std::vector<size_t> family_of;
  for (int64_t d = 0; d < documents.count(); ++d) {
    const int64_t before = documents.continues(d);
    family_of.push_back(before < 0 ? families.size() : family_of[static_cast<size_t>(before)]);
    if (before < 0) families.emplace_back();
    families[family_of.back()].push_back(d);
  }
  return families;
}

void delta_product(const Operand& a, const Operand& b, const ProductSizes& sizes, float* c, int64_t stride,
                   bool accumulate) {
  multiply(Tile{.a = {a.data, DType::kF32, a.stride, a.transposed},
                .b = {b.data, DType::kF32, b.stride, b.transposed},
                .m = sizes.m,
                .n = sizes.n,
                .k = sizes.k,
                .c = c,
                .stride = stride,
                .accumulate = accumulate});
}

int64_t DeltaChunks::floats(int64_t key_dim, int64_t value_dim, int64_t chunk) {
  return chunk * (3 * key_dim + 3 * value_dim + 4 * kDeltaStride + 3);
}

DeltaChunks::DeltaChunks(const ops::ChunkGatedDeltaRule& op, Scratch& scratch) : op_(op) {
  const auto rows = [&](int64_t size) { return scratch.take(delta_chunk(op) * size); };
  keys_.q = rows(op.key_dim());
  keys_.k = rows(op.key_dim());
  keys_.q_scale = rows(1);
  keys_.k_scale = rows(1);
  keys_.kk = rows(kDeltaStride);
  keys_.qk = rows(kDeltaStride);
  values_ = {rows(op.value_dim()), rows(kDeltaStride), rows(1),           rows(op.value_dim()),
             rows(op.value_dim()), rows(kDeltaStride), rows(op.key_dim())};
}

void DeltaChunks::load_keys(int64_t key_head, int64_t first, int64_t size) {
  const int64_t dim = op_.key_dim();
  keys_.first = first;
  keys_.size = size;
  copy_block(heads_at(op_.q, first, key_head), {keys_.q, DType::kF32, dim}, size, dim);
  copy_block(heads_at(op_.k, first, key_head), {keys_.k, DType::kF32, dim}, size, dim);
  if (op_.norms) {
    norm_rows(keys_.q, size, dim, op_.eps, keys_.q_scale);
    norm_rows(keys_.k, size, dim, op_.eps, keys_.k_scale);
  }
  delta_product({keys_.k, dim}, {keys_.k, dim, true}, {size, size, dim}, keys_.kk, kDeltaStride);
  delta_product({keys_.q, dim}, {keys_.k, dim, true}, {size, size, dim}, keys_.qk, kDeltaStride);
}

// Products of the tokens' own decays: a difference of sums of logarithms would lose what follows a large one.
void DeltaChunks::load_decays(int64_t head) {
  for (int64_t t = 0; t < keys_.size; ++t) {
    const float own = std::exp(op_.g.data<float>()[(keys_.first + t) * op_.heads() + head]);
    values_.start[t] = t == 0 ? own : values_.start[t - 1] * own;
    float* const row = values_.decay + t * kDeltaStride;
    if (t > 0) delta_rows::scale(row - kDeltaStride, own, row, t);
    row[t] = 1;
  }
}

void DeltaChunks::load_transition(int64_t head) {
  const int64_t size = keys_.size, key_dim = op_.key_dim();
  load_decays(head);
  const float* const last = values_.decay + (size - 1) * kDeltaStride;
  for (int64_t t = 0; t < size; ++t) {
    const int64_t row = t * kDeltaStride;
    delta_rows::multiply(values_.decay + row, keys_.kk + row, -beta(head, t), values_.n + row, t);
    delta_rows::scale(keys_.k + t * key_dim, last[t], values_.kept + t * key_dim, key_dim);
  }
}

void DeltaChunks::load_values(int64_t head, const float* state) {
  const int64_t size = keys_.size, key_dim = op_.key_dim(), dim = op_.value_dim();
  load_transition(head);
  copy_block(heads_at(op_.v, keys_.first, head), {values_.v, DType::kF32, dim}, size, dim);
  delta_product({keys_.k, key_dim}, {state, dim}, {size, dim, key_dim}, values_.known, dim);
  for (int64_t t = 0; t < size; ++t) {
    const float strength = beta(head, t);
    float* const u = values_.u + t * dim;
    delta_rows::scale(values_.v + t * dim, strength, u, dim);
    delta_rows::add_scaled(values_.known + t * dim, -strength * values_.start[t], u, dim);
  }
  solve(values_.n, values_.u, size, dim);
}

void DeltaChunks::advance(float* state) const {
  const int64_t key_dim = op_.key_dim(), dim = op_.value_dim();
  const float whole = values_.start[keys_.size - 1];
  delta_rows::scale(state, whole, state, key_dim * dim);
  delta_product({values_.kept, key_dim, true}, {values_.u, dim}, {key_dim, dim, keys_.size}, state, dim,
                true);
}

void DeltaChunks::mix(float* p) const {
  for (int64_t t = 0; t < keys_.size; ++t) {
    const int64_t row = t * kDeltaStride;
    delta_rows::multiply(values_.decay + row, keys_.qk + row, 1, p + row, t + 1);
    std::fill(p + row + t + 1, p + row + keys_.size, 0.f);
  }
}

}  // namespace temper::backends
