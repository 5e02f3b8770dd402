#include "ops/attention/decode_attention.h"

#include <cmath>

#include "tests/support/op_testing.h"

namespace temper::ops {
namespace {

using namespace op_testing;

const RequiredKernels<DecodeAttention> kDecodeAttentionKernels{
    {.heads = 16, .kv_heads = 8, .head_dim = 128},
    kAll,
    {{"onednn", "onednn", kCpu, kWide},
     {"cuda", "cuda", kGpu, kWide, [](const DecodeAttention::Signature& s) {
        return !s.sinks && (s.head_dim <= 64 || (s.head_dim % 8 == 0 && s.head_dim <= 256));
      }}}};

struct Decoding {
  std::vector<int32_t> lengths;
  int64_t capacity, heads = 1, kv_heads = 1, head_dim = 8, window = 0;
  bool sinks = false;
  bool fused = false;  // k and v are views of one [sequences, 2 kv_heads, head_dim]
};

// y, then the caches with the new token in them.
Doubles decoded(const Decoding& s, double scale, const std::vector<Doubles>& inputs) {
  const int64_t dim = s.head_dim, step = s.kv_heads * dim, sequences = std::ssize(s.lengths);
  Doubles keys = inputs[3], values = inputs[4], y;
  for (int64_t n = 0; n < sequences; ++n) {
    const int64_t length = s.lengths[static_cast<size_t>(n)], cache = n * s.capacity * step;
    for (int64_t i = 0; i < step; ++i) {
      keys[cache + length * step + i] = inputs[1][n * step + i];
      values[cache + length * step + i] = inputs[2][n * step + i];
    }
    const int64_t first = s.window == 0 ? 0 : std::max<int64_t>(0, length - s.window + 1);
    for (int64_t h = 0; h < s.heads; ++h) {
      const int64_t kv = cache + h / (s.heads / s.kv_heads) * dim;
      Doubles weights;
      double sum = 0, largest = s.sinks ? inputs[5][h] : -1e300;
      for (int64_t j = first; j <= length; ++j) {
        double dot = 0;
        for (int64_t i = 0; i < dim; ++i)
          dot += inputs[0][(n * s.heads + h) * dim + i] * keys[kv + j * step + i];
        weights.push_back(scale * dot);
        largest = std::max(largest, weights.back());
      }
      if (s.sinks) sum = std::exp(inputs[5][h] - largest);
      for (double& weight : weights) sum += weight = std::exp(weight - largest);
      for (int64_t i = 0; i < dim; ++i) {
        double value = 0;
        for (int64_t j = first; j <= length; ++j)
          value += weights[j - first] / sum * values[kv + j * step + i];
        y.push_back(value);
      }
    }
  }
  y.insert(y.end(), keys.begin(), keys.end());
  y.insert(y.end(), values.begin(), values.end());
  return y;
}

void check_decoding(const Decoding& s) {
  const float scale = 1 / std::sqrt(static_cast<float>(s.head_dim));
  const int64_t sequences = std::ssize(s.lengths);
  const Shape q{sequences, s.heads, s.head_dim}, k{sequences, s.kv_heads, s.head_dim},
      cache{sequences, s.capacity, s.kv_heads, s.head_dim};
  Case c;
  c.name = fmt::format("q {}, caches {}, window {}{}{}", to_string(q), to_string(cache), s.window,
                       s.fused ? ", fused" : "", s.sinks ? ", sinks" : "");
  c.inputs = {{"q", q, normal(1, q)},
              {"k", k, normal(2, k)},
              {"v", k, normal(3, k)},
              {"keys", cache, normal(4, cache)},
              {"values", cache, normal(5, cache)}};
  if (s.sinks) c.inputs.push_back({"sinks", {s.heads}, normal(6, {s.heads}, 2)});
  if (s.fused) {
    c.inputs[1].padding = {1, 0, s.kv_heads};
    c.inputs[2].padding = {1, s.kv_heads, 0};
  }
  c.inference = true;
  c.terms = std::max<int64_t>(s.capacity, s.head_dim);
  c.reference = [s, scale](const std::vector<Doubles>& inputs) { return decoded(s, scale, inputs); };
  c.run = [s, scale](Tape& tape, const BoundOps& ops, const std::vector<Var>& v) {
    const Tensor keys = v[3].value.clone(), values = v[4].value.clone();
    const DecodeAttention op{v[0].value, v[1].value, v[2].value,
                             keys,       values,     on_device_of(v[0], ints(s.lengths)),
                             scale,      s.window,   s.sinks ? v[5].value : Tensor()};
    const Var y = tape.constant(decode_attention(ops, op));
    return Result{y, {keys, values}};
  };
  check_every_kernel<DecodeAttention>(c, {.heads = s.heads,
                                          .kv_heads = s.kv_heads,
                                          .head_dim = s.head_dim,
                                          .window = s.window > 0,
                                          .sinks = s.sinks});
}

TEST(DecodeAttention, HeadDims) {
  for (const int64_t dim : {6, 8, 16, 64, 80, 96, 128, 160, 256})
    check_decoding({.lengths = {9}, .capacity = 11, .heads = 2, .kv_heads = 1, .head_dim = dim});
}

TEST(DecodeAttention, GroupedQueries) {
  for (const int64_t group : {1, 2, 3, 4, 5, 8, 12})
    check_decoding({.lengths = {70}, .capacity = 80, .heads = 2 * group, .kv_heads = 2, .head_dim = 16});
}

TEST(DecodeAttention, LengthsFromEmptyToFull) {
  for (const int32_t length : {0, 1, 31, 32, 63, 64, 65, 299})
    check_decoding({.lengths = {length}, .capacity = 300, .heads = 4, .kv_heads = 2, .head_dim = 16});
}

TEST(DecodeAttention, ManySequences) {
  check_decoding(
      {.lengths = {5, 0, 129, 200, 64}, .capacity = 201, .heads = 4, .kv_heads = 2, .head_dim = 16});
  check_decoding(
      {.lengths = {5, 40}, .capacity = 41, .heads = 2, .kv_heads = 2, .head_dim = 8, .fused = true});
}

// A GPU's block has all heads of a key then, in the most memory that it uses.
TEST(DecodeAttention, ManyWideHeads) {
  check_decoding({.lengths = {0, 1, 69, 70, 71, 30, 5, 64},
                  .capacity = 72,
                  .heads = 32,
                  .kv_heads = 4,
                  .head_dim = 256});
}

TEST(DecodeAttention, LongCachesAreSplit) {
  check_decoding({.lengths = {2500}, .capacity = 2600, .heads = 4, .kv_heads = 2, .head_dim = 64});
  check_decoding({.lengths = {9000, 3}, .capacity = 9001, .heads = 2, .kv_heads = 1, .head_dim = 8});
}

TEST(DecodeAttention, Windows) {
  for (const int64_t window : {1, 7, 100, 400})
    check_decoding(
        {.lengths = {300, 5}, .capacity = 301, .heads = 4, .kv_heads = 2, .head_dim = 16, .window = window});
}

TEST(DecodeAttention, Sinks) {
  for (const int64_t window : {0, 1, 7, 400})
    check_decoding({.lengths = {300, 5, 0},
                    .capacity = 301,
                    .heads = 4,
                    .kv_heads = 2,
                    .head_dim = 16,
                    .window = window,
                    .sinks = true});
  check_decoding({.lengths = {9}, .capacity = 11, .heads = 16, .kv_heads = 1, .head_dim = 64, .sinks = true});
}

TEST(DecodeAttention, ChecksAtTheFrontDoor) {
  const BoundOps ops = bind_kernel<DecodeAttention>("eager", {});
  const auto f32 = [](Shape shape) { return Tensor::zeros(shape, DType::kF32); };
  const auto expect = [&](const std::function<void(DecodeAttention&)>& change, std::string_view message) {
    DecodeAttention op{f32({2, 4, 8}),    f32({2, 2, 8}),    f32({2, 2, 8}),
                       f32({2, 9, 2, 8}), f32({2, 9, 2, 8}), ints({3, 8})};
    change(op);
    expect_error([&] { decode_attention(ops, op); }, message);
  };
  expect(
      [&](DecodeAttention& op) {
        op.q = f32({2, 32});
      },
      "[decode_attention] q is [2, 32], needs 3 dimensions");
  expect(
      [&](DecodeAttention& op) {
        op.values = f32({2, 8, 2, 8});
      },
      "[decode_attention] values is [2, 8, 2, 8], needs [2, 9, 2, 8]");
  expect(
      [&](DecodeAttention& op) {
        op.v = f32({2, 4, 8});
      },
      "[decode_attention] v is [2, 4, 8], needs [2, 2, 8]");
  expect([&](DecodeAttention& op) { op.k = op.k.to(DType::kBF16); },
         "[decode_attention] k is bfloat16, needs float32");
  expect([&](DecodeAttention& op) { op.lengths = ints({3}); },
         "[decode_attention] lengths is [1], needs [2]");
  expect(
      [&](DecodeAttention& op) {
        op.lengths = ints({3, 9});
      },
      "[decode_attention] a sequence has 9 tokens, no room for one more in a cache of 9");
  expect([&](DecodeAttention& op) { op.sinks = f32({2}); }, "[decode_attention] sinks is [2], needs [4]");
  expect([&](DecodeAttention& op) { op.window = -1; },
         "[decode_attention] window is -1, needs 0 (none) or more");
}

}  // namespace
}  // namespace temper::ops
