#include "ops/attention/paged_attention.h"

#include <cmath>
#include <limits>
#include <numeric>

#include "base/random.h"
#include "tests/support/op_testing.h"

namespace temper::ops {
namespace {

using namespace op_testing;

const RequiredKernels<PagedAttention> kPagedAttentionKernels{
    {.heads = 16, .kv_heads = 8, .head_dim = 128},
    kAll,
    {{"onednn", "onednn", kCpu, kWide},
     {"onednn_invariant", "onednn", kCpu, kFloat32},
     {"cuda", "cuda", kGpu, kBFloat16,
      [](const PagedAttention::Signature& s) { return s.head_dim % 8 == 0 && s.head_dim <= 256; }},
     {"cuda_float32", "cuda", kGpu, kFloat32, [](const PagedAttention::Signature& s) {
        return !s.sinks && (s.head_dim <= 64 || (s.head_dim % 4 == 0 && s.head_dim <= 256));
      }}}};

struct Paged {
  std::vector<int32_t> held, added;
  int64_t page_tokens = 16, heads = 1, kv_heads = 1, head_dim = 8, window = 0;
  bool sinks = false;
  bool fused = false;  // k and v are views of one [tokens, 2 kv_heads, head_dim]

  int64_t sequences() const { return std::ssize(held); }
  int64_t length(int64_t s) const { return held[static_cast<size_t>(s)] + added[static_cast<size_t>(s)]; }
  int64_t tokens() const { return std::accumulate(added.begin(), added.end(), int64_t{0}); }
  int64_t width() const {
    int64_t most = 0;
    for (int64_t s = 0; s < sequences(); ++s)
      most = std::max(most, (length(s) + page_tokens - 1) / page_tokens);
    return most;
  }
  int64_t pages() const { return sequences() * width() + 1; }
};

// Pages of all sequences, mixed; no sequence has the first one, and entries that are not needed name none.
std::vector<int32_t> tables_of(const Paged& s) {
  std::vector<int32_t> order(static_cast<size_t>(s.sequences() * s.width()));
  std::iota(order.begin(), order.end(), 1);
  const Random random(5, RandomPurpose::kShuffle);
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i, i)]);
  for (int64_t n = 0; n < s.sequences(); ++n)
    for (int64_t i = 0; i < s.width(); ++i)
      if (i * s.page_tokens >= s.length(n)) order[static_cast<size_t>(n * s.width() + i)] = -7;
  return order;
}

PagedSequences sequences_of(const Paged& s) {
  std::vector<int32_t> starts{0};
  for (const int32_t added : s.added) starts.push_back(starts.back() + added);
  return {ints(starts), ints(s.held), ints(tables_of(s)).reshape({s.sequences(), s.width()})};
}

// y, then the pages with the new tokens in them.
Doubles attended(const Paged& s, double scale, const std::vector<Doubles>& inputs) {
  const int64_t dim = s.head_dim, step = s.kv_heads * dim;
  const std::vector<int32_t> tables = tables_of(s);
  Doubles keys = inputs[3], values = inputs[4], y;
  int64_t row = 0;
  for (int64_t n = 0; n < s.sequences(); ++n) {
    const auto place = [&](int64_t token) {
      return (tables[static_cast<size_t>(n * s.width() + token / s.page_tokens)] * s.page_tokens +
              token % s.page_tokens) *
             step;
    };
    for (int64_t at = s.held[static_cast<size_t>(n)]; at < s.length(n); ++at, ++row) {
      for (int64_t i = 0; i < step; ++i) {
        keys[place(at) + i] = inputs[1][row * step + i];
        values[place(at) + i] = inputs[2][row * step + i];
      }
      const int64_t first = s.window == 0 ? 0 : std::max<int64_t>(0, at - s.window + 1);
      for (int64_t h = 0; h < s.heads; ++h) {
        const int64_t kv = h / (s.heads / s.kv_heads) * dim;
        Doubles weights;
        double sum = 0, largest = s.sinks ? inputs[5][h] : -1e300;
        for (int64_t j = first; j <= at; ++j) {
          double dot = 0;
          for (int64_t i = 0; i < dim; ++i)
            dot += inputs[0][(row * s.heads + h) * dim + i] * keys[place(j) + kv + i];
          weights.push_back(scale * dot);
          largest = std::max(largest, weights.back());
        }
        if (s.sinks) sum = std::exp(inputs[5][h] - largest);
        for (double& weight : weights) sum += weight = std::exp(weight - largest);
        for (int64_t i = 0; i < dim; ++i) {
          double value = 0;
          for (int64_t j = first; j <= at; ++j) value += weights[j - first] / sum * values[place(j) + kv + i];
          y.push_back(value);
        }
      }
    }
  }
  y.insert(y.end(), keys.begin(), keys.end());
  y.insert(y.end(), values.begin(), values.end());
  return y;
}

void check_paged(const Paged& s) {
  const float scale = 1 / std::sqrt(static_cast<float>(s.head_dim));
  const Shape q{s.tokens(), s.heads, s.head_dim}, k{s.tokens(), s.kv_heads, s.head_dim},
      pages{s.pages(), s.page_tokens, s.kv_heads, s.head_dim};
  Case c;
  c.name = fmt::format("q {}, pages {}, window {}{}{}", to_string(q), to_string(pages), s.window,
                       s.fused ? ", fused" : "", s.sinks ? ", sinks" : "");
  c.inputs = {{"q", q, normal(1, q)},
              {"k", k, normal(2, k)},
              {"v", k, normal(3, k)},
              {"keys", pages, normal(4, pages)},
              {"values", pages, normal(5, pages)}};
  if (s.sinks) c.inputs.push_back({"sinks", {s.heads}, normal(6, {s.heads}, 2)});
  if (s.fused) {
    c.inputs[1].padding = {1, 0, s.kv_heads};
    c.inputs[2].padding = {1, s.kv_heads, 0};
  }
  c.inference = true;
  c.terms = std::max<int64_t>(s.width() * s.page_tokens, s.head_dim);
  c.reference = [s, scale](const std::vector<Doubles>& inputs) { return attended(s, scale, inputs); };
  c.run = [s, scale](Tape& tape, const BoundOps& ops, const std::vector<Var>& v) {
    const Tensor keys = v[3].value.clone(), values = v[4].value.clone();
    const PagedAttention op{v[0].value, v[1].value, v[2].value,
                            keys,       values,     sequences_of(s),
                            scale,      s.window,   s.sinks ? v[5].value : Tensor()};
    return Result{tape.constant(paged_attention(ops, op)), {keys, values}};
  };
  check_every_kernel<PagedAttention>(c, {.heads = s.heads,
                                         .kv_heads = s.kv_heads,
                                         .head_dim = s.head_dim,
                                         .window = s.window > 0,
                                         .sinks = s.sinks});
}

TEST(PagedAttention, OneTokenOfEachSequence) {
  check_paged({.held = {0, 1, 15, 16, 17, 63, 64, 299},
               .added = {1, 1, 1, 1, 1, 1, 1, 1},
               .heads = 4,
               .kv_heads = 2,
               .head_dim = 16});
}

// Kernels that copy whole tiles from pages must have the new token, which is the last of its tile, from its
// own place.
TEST(PagedAttention, TheNewTokenEndsATile) {
  for (const int64_t dim : {64, 128})
    check_paged({.held = {15, 31, 63, 399, 400},
                 .added = {1, 1, 1, 1, 1},
                 .heads = 4,
                 .kv_heads = 2,
                 .head_dim = dim});
}

TEST(PagedAttention, PartsOfPromptsBesideTokens) {
  check_paged({.held = {40, 0, 7, 90, 300, 250},
               .added = {1, 37, 5, 1, 70, 17},
               .heads = 4,
               .kv_heads = 2,
               .head_dim = 16});
  check_paged({.held = {0, 200}, .added = {300, 290}, .heads = 2, .head_dim = 8, .fused = true});
}

TEST(PagedAttention, SizesOfPages) {
  for (const int64_t page_tokens : {1, 5, 16, 64, 100, 256, 300})
    check_paged({.held = {40, 0, 290},
                 .added = {1, 37, 30},
                 .page_tokens = page_tokens,
                 .heads = 2,
                 .kv_heads = 1,
                 .head_dim = 8});
}

TEST(PagedAttention, HeadsAndDims) {
  for (const int64_t dim : {6, 64, 80, 128, 256})
    check_paged({.held = {9, 0}, .added = {1, 11}, .heads = 2, .head_dim = dim});
  for (const int64_t group : {1, 3, 8, 12})
    check_paged({.held = {70, 3}, .added = {1, 6}, .heads = 2 * group, .kv_heads = 2, .head_dim = 16});
}

TEST(PagedAttention, WindowsAndSinks) {
  for (const int64_t window : {1, 7, 100, 400})
    for (const bool sinks : {false, true})
      check_paged({.held = {300, 5, 290},
                   .added = {1, 9, 40},
                   .heads = 4,
                   .kv_heads = 2,
                   .head_dim = 16,
                   .window = window,
                   .sinks = sinks});
}

// Sequences that kernels cut into parts, more than one of which has a window's beginning.
TEST(PagedAttention, LongSequences) {
  for (const int64_t window : {0, 700})
    check_paged({.held = {1300, 255, 256, 0},
                 .added = {1, 1, 70, 1},
                 .heads = 10,
                 .kv_heads = 1,
                 .head_dim = 24,
                 .window = window,
                 .sinks = window > 0});
  check_paged(
      {.held = {600, 300}, .added = {1, 70}, .heads = 4, .kv_heads = 2, .head_dim = 128, .fused = true});
}

// Unused pages, and places behind the last token, may hold anything.
TEST(PagedAttention, WhatIsNoTokenIsNotRead) {
  const Paged s{.held = {40, 0, 290}, .added = {1, 37, 30}, .heads = 4, .kv_heads = 2, .head_dim = 16};
  const Shape q{s.tokens(), s.heads, s.head_dim}, k{s.tokens(), s.kv_heads, s.head_dim},
      pages{s.pages(), s.page_tokens, s.kv_heads, s.head_dim};
  for (const BoundKernel& kernel :
       bind_everywhere<PagedAttention>({DType::kF32, s.heads, s.kv_heads, s.head_dim})) {
    SCOPED_TRACE(kernel.provider + " on " + to_string(kernel.device));
    const auto run = [&](float behind) {
      PagedAttention op;
      op.q = tensor_of(normal(1, q), q, DType::kF32).on(kernel.device);
      op.k = tensor_of(normal(2, k), k, DType::kF32).on(kernel.device);
      op.v = tensor_of(normal(3, k), k, DType::kF32).on(kernel.device);
      op.sequences = sequences_of(s);
      const auto filled = [&](uint64_t seed) {
        const Tensor all = tensor_of(Doubles(static_cast<size_t>(pages.numel()), behind), pages, DType::kF32),
                     there = tensor_of(normal(seed, pages), pages, DType::kF32);
        PagedSequences before = op.sequences;
        for (int64_t n = 0; n < s.sequences(); ++n)
          for (int64_t at = 0; at < before.held_by(n); ++at) {
            const int64_t page = before.pages_of(n)[at / s.page_tokens], place = at % s.page_tokens;
            all.narrow(0, page, 1)
                .narrow(1, place, 1)
                .copy_from(there.narrow(0, page, 1).narrow(1, place, 1));
          }
        return all.on(kernel.device);
      };
      op.keys = filled(4);
      op.values = filled(5);
      return values_of(paged_attention(kernel.ops, op));
    };
    EXPECT_EQ(run(std::numeric_limits<float>::quiet_NaN()), run(0));
  }
}

TEST(PagedAttention, ChecksAtTheFrontDoor) {
  const BoundOps ops = bind_kernel<PagedAttention>("eager", {});
  const auto f32 = [](Shape shape) { return Tensor::zeros(shape, DType::kF32); };
  const auto expect = [&](const std::function<void(PagedAttention&)>& change, std::string_view message) {
    PagedAttention op{
        f32({3, 4, 8}),    f32({3, 2, 8}),
        f32({3, 2, 8}),    f32({5, 4, 2, 8}),
        f32({5, 4, 2, 8}), {ints({0, 2, 3}), ints({6, 0}), ints({4, 1, 0, -1}).reshape({2, 2})}};
    change(op);
    expect_error([&] { paged_attention(ops, op); }, message);
  };
  expect(
      [&](PagedAttention& op) {
        op.v = f32({3, 4, 8});
      },
      "[paged_attention] v is [3, 4, 8], needs [3, 2, 8]");
  expect(
      [&](PagedAttention& op) {
        op.values = f32({5, 4, 2, 9});
      },
      "[paged_attention] values is [5, 4, 2, 9], needs [5, 4, 2, 8]");
  expect(
      [&](PagedAttention& op) {
        op.sequences.starts = ints({0, 2, 4});
      },
      "[paged_attention] starts go from 0 to 4, need 0 to 3");
  expect(
      [&](PagedAttention& op) {
        op.sequences.starts = ints({0, 0, 3});
      },
      "[paged_attention] sequence 0 holds 6 tokens and gets 0; it needs 0 or more, and at least one");
  expect(
      [&](PagedAttention& op) {
        op.sequences.held = ints({7, 0});
      },
      "[paged_attention] sequence 0 has 9 tokens, no room in 2 pages of 4");
  expect(
      [&](PagedAttention& op) {
        op.sequences.held = ints({6, 4});
      },
      "[paged_attention] sequence 1 has page -1, but the pages are 0 to 4");
  expect([&](PagedAttention& op) { op.sinks = f32({2}); }, "[paged_attention] sinks is [2], needs [4]");
  expect([&](PagedAttention& op) { op.window = -1; },
         "[paged_attention] window is -1, needs 0 (none) or more");
}

}  // namespace
}  // namespace temper::ops
