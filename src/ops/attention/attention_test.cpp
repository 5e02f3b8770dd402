#include "ops/attention/attention.h"

#include <cmath>

#include "tests/support/op_testing.h"

namespace temper::ops {
namespace {

using namespace op_testing;

bool takes_head(const Attention::Signature& s, int64_t most) {
  return !s.sinks && s.causal && s.kv_heads > 0 && s.heads % s.kv_heads == 0 && s.head_dim > 0 &&
         s.head_dim % 8 == 0 && s.head_dim <= most && !s.narrow_or_wide_values();
}
bool up_to_256(const Attention::Signature& s) {
  const bool of_latents = s.head_dim == 192 && s.value_dim == 128;
  return takes_head(s, 256) ||
         (of_latents && !s.sinks && s.causal && s.kv_heads > 0 && s.heads % s.kv_heads == 0);
}
bool up_to_128(const Attention::Signature& s) { return takes_head(s, 128); }

const RequiredKernels<Attention> kAttentionKernels{
    {.heads = 16, .kv_heads = 8, .head_dim = 128},
    kAll,
    {{"onednn", "onednn", kCpu, kWide},
     {"hopper", "cudnn", kHopper, kBFloat16,
      [](const Attention::Signature& s) { return up_to_128(s) && s.head_dim % 64 == 0; }},
     {"cudnn", "cudnn", kFrom9, kBFloat16, up_to_256},
     {"cudnn", "cudnn", kFrom10, kBFloat16, up_to_128},
     {"cudnn_nondeterministic", "cudnn", kFrom9, kBFloat16, up_to_256, true},
     {"cudnn_nondeterministic", "cudnn", kFrom10, kBFloat16, up_to_128, true},
     {"cuda_invariant", "cudnn", kHopper, kBFloat16,
      [](const Attention::Signature& s) { return up_to_256(s) && !s.narrow_or_wide_values(); }},
     {"cuda", "cuda", kGpu, kWide, [](const Attention::Signature& s) {
        return !s.sinks && s.causal && s.head_dim <= 256 && !s.narrow_or_wide_values();
      }}}};

// Documents by the number of their queries and keys.
struct Setup {
  std::vector<std::pair<int32_t, int32_t>> documents;
  int64_t heads = 1, kv_heads = 1, head_dim = 8, window = 0;
  double logit_scale = 1;
  bool fused = false;     // q, k and v are views of one [tokens, heads + 2 kv_heads, head_dim] layout
  int64_t value_dim = 0;  // 0: head_dim
  bool sinks = false;
  bool causal = true;
  int64_t values() const { return value_dim > 0 ? value_dim : head_dim; }
};

std::vector<std::pair<int32_t, int32_t>> packed(const std::vector<int32_t>& lengths) {
  std::vector<std::pair<int32_t, int32_t>> documents;
  for (const int32_t length : lengths) documents.emplace_back(length, length);
  return documents;
}

// One query of one head, the head's keys and values, and what they see of each other.
struct Query {
  const double *q, *k, *v;
  int64_t first, last;  // keys
  double scale;
  const double* sink;  // null: none
};

// Adds softmax(scale · q kᵀ) v to y.
void attend(const Setup& s, const Query& query, double* y) {
  const auto [q, k, v, first, last, scale, sink] = query;
  const int64_t stride = s.kv_heads * s.head_dim, value_stride = s.kv_heads * s.values();
  Doubles logits;
  double largest = sink == nullptr ? -1e300 : *sink, sum = 0;
  for (int64_t j = first; j <= last; ++j) {
    double dot = 0;
    for (int64_t i = 0; i < s.head_dim; ++i) dot += q[i] * k[j * stride + i];
    logits.push_back(scale * dot);
    largest = std::max(largest, logits.back());
  }
  if (sink != nullptr) sum = std::exp(*sink - largest);
  for (double& logit : logits) {
    logit = std::exp(logit - largest);
    sum += logit;
  }
  for (int64_t j = first; j <= last; ++j) {
    const double weight = logits[j - first] / sum;
    for (int64_t i = 0; i < s.values(); ++i) y[i] += weight * v[j * value_stride + i];
  }
}

Doubles reference(const Setup& s, double scale, const std::vector<Doubles>& inputs) {
  const int64_t dim = s.head_dim, value_dim = s.values(), group = s.heads / s.kv_heads;
  Doubles y(inputs[0].size() / static_cast<size_t>(dim) * static_cast<size_t>(value_dim));
  int64_t q0 = 0, k0 = 0;
  for (const auto& [queries, keys] : s.documents) {
    for (int64_t i = 0; i < queries; ++i)
      for (int64_t h = 0; h < s.heads; ++h) {
        const int64_t last = s.causal ? i + keys - queries : keys - 1, at = (q0 + i) * s.heads + h;
        const int64_t first = s.window == 0 ? 0 : std::max<int64_t>(0, last - s.window + 1);
        const int64_t kv = k0 * s.kv_heads + h / group;
        attend(s,
               {&inputs[0][at * dim], &inputs[1][kv * dim], &inputs[2][kv * value_dim], first, last, scale,
                s.sinks ? &inputs[3][h] : nullptr},
               &y[at * value_dim]);
      }
    q0 += queries;
    k0 += keys;
  }
  return y;
}

Attention documents_of(const Setup& s, float scale) {
  std::vector<int32_t> q{0}, k{0};
  for (const auto& [queries, keys] : s.documents) {
    q.push_back(q.back() + queries);
    k.push_back(k.back() + keys);
  }
  Attention op;
  op.cu_seqlens_q = ints(q);
  op.cu_seqlens_k = ints(k);
  op.scale = scale;
  op.window = s.window;
  op.causal = s.causal;
  return op;
}

void check(const Setup& s) {
  const float scale = 1 / std::sqrt(static_cast<float>(s.head_dim));
  const Attention op = documents_of(s, scale);
  const int64_t tokens = op.cu_seqlens_q.values<int32_t>().back(),
                kv_tokens = op.cu_seqlens_k.values<int32_t>().back();
  const Shape q{tokens, s.heads, s.head_dim}, k{kv_tokens, s.kv_heads, s.head_dim},
      v{kv_tokens, s.kv_heads, s.values()};
  Case c;
  c.name = fmt::format("{} documents, q {}, k {}, v {}, window {}, logits × {}{}", s.documents.size(),
                       to_string(q), to_string(k), to_string(v), s.window, s.logit_scale,
                       s.fused ? ", fused" : "") +
           (s.sinks ? ", sinks" : "") + (s.causal ? "" : ", not causal");
  c.inputs = {{"q", q, normal(1, q, s.logit_scale)}, {"k", k, normal(2, k)}, {"v", v, normal(3, v)}};
  if (s.sinks) c.inputs.push_back({"sinks", {s.heads}, normal(4, {s.heads}, 2)});
  if (s.fused) {
    c.inputs[0].padding = {1, 0, 2 * s.kv_heads};
    c.inputs[1].padding = {1, s.heads, s.kv_heads};
    c.inputs[2].padding = {1, s.heads + s.kv_heads, 0};
  }
  c.reference = [s, scale](const std::vector<Doubles>& inputs) { return reference(s, scale, inputs); };
  c.run = [op, s](Tape& tape, const BoundOps& ops, const std::vector<Var>& v) {
    return Result{attention(tape, ops, v[0], v[1], v[2], op, s.sinks ? v[3] : Var()), {}};
  };
  int64_t work = 0;
  for (const auto& [queries, keys] : s.documents) {
    work += int64_t{queries} * keys * s.heads * s.head_dim;
    c.terms = std::max<int64_t>(c.terms, keys);
  }
  c.samples = work < 100'000 ? 16 : work < 1'000'000 ? 6 : 1;
  c.terms = std::max({c.terms, s.head_dim, s.values()});
  c.floor = 0.1;  // a query with one key has no gradient, and kernels find the difference of two sums
  c.roundings = s.logit_scale > 1 ? 3 : 1;
  check_every_kernel<Attention>(c, {.heads = s.heads,
                                    .kv_heads = s.kv_heads,
                                    .head_dim = s.head_dim,
                                    .window = s.window > 0,
                                    .value_dim = s.value_dim,
                                    .sinks = s.sinks,
                                    .causal = s.causal});
}

TEST(Attention, HeadDims) {
  for (const int64_t dim : {8, 16, 64, 80, 96, 128, 256})
    check({.documents = packed({9}), .heads = 2, .kv_heads = 2, .head_dim = dim});
}

// As models have them: documents of one length, and packed ones, with grouped queries.
TEST(Attention, WideHeads) {
  for (const int64_t dim : {96, 256}) {
    check({.documents = packed({128, 128}), .heads = 4, .kv_heads = 2, .head_dim = dim});
    check({.documents = packed({70, 1, 133}), .heads = 4, .kv_heads = 2, .head_dim = dim});
    check({.documents = packed({150}), .heads = 2, .kv_heads = 1, .head_dim = dim});
    check({.documents = {{40, 140}, {30, 30}}, .heads = 2, .kv_heads = 1, .head_dim = dim, .fused = true});
    check({.documents = {{5, 5}, {0, 7}, {133, 133}}, .heads = 2, .kv_heads = 1, .head_dim = dim});
    check({.documents = packed({150, 3}), .heads = 2, .kv_heads = 1, .head_dim = dim, .window = 70});
  }
}

TEST(Attention, GroupedQueries) {
  for (const int64_t group : {1, 2, 3, 4})
    check({.documents = packed({7, 4}), .heads = 2 * group, .kv_heads = 2, .head_dim = 16});
  check({.documents = packed({6}), .heads = 4, .kv_heads = 1});
}

TEST(Attention, PackedDocuments) {
  check({.documents = packed({1})});
  check({.documents = packed({1, 1, 1}), .heads = 2});
  check({.documents = packed({5, 0, 1, 33, 0}), .heads = 2});
  check({.documents = packed({0, 3})});
  check({.documents = packed({16, 17, 31, 32}), .heads = 2, .kv_heads = 1, .head_dim = 16});
}

TEST(Attention, NoTokens) {
  check({.documents = packed({0})});
  check({.documents = packed({0, 0}), .heads = 4, .kv_heads = 2});
}

TEST(Attention, MoreKeysThanQueries) {
  check({.documents = {{1, 40}}, .heads = 4, .kv_heads = 2, .head_dim = 16});
  check({.documents = {{5, 21}, {1, 9}, {3, 3}}, .heads = 2});
  check({.documents = {{0, 4}, {2, 5}}, .heads = 2});
  check({.documents = {{1, 300}, {1, 129}, {1, 1}}, .heads = 4, .kv_heads = 2, .head_dim = 16});
}

TEST(Attention, Windows) {
  check({.documents = packed({20, 3}), .heads = 2, .window = 1});
  check({.documents = packed({20, 3}), .heads = 2, .window = 5});
  check({.documents = packed({9}), .heads = 2, .window = 100});
  check({.documents = {{4, 30}, {1, 50}}, .heads = 2, .kv_heads = 1, .head_dim = 16, .window = 7});
  check({.documents = packed({150}), .head_dim = 16, .window = 70});
}

TEST(Attention, StridedTokens) {
  check({.documents = packed({9, 4}), .heads = 4, .kv_heads = 2, .head_dim = 16, .fused = true});
  check({.documents = {{3, 9}, {1, 1}}, .heads = 3, .kv_heads = 1, .window = 4, .fused = true});
}

TEST(Attention, LongDocumentsCrossTiles) {
  check({.documents = packed({129, 2}), .heads = 2, .kv_heads = 1, .head_dim = 16});
  check({.documents = packed({64, 65, 128}), .head_dim = 8});
  check({.documents = packed({261}), .head_dim = 16, .fused = true});
  check({.documents = packed({257}), .heads = 2, .kv_heads = 2, .head_dim = 8, .window = 130});
  check({.documents = {{70, 270}}, .heads = 2, .kv_heads = 1, .head_dim = 64});
}

// What the kernels for training are written for.
TEST(Attention, WideHeadsCrossTiles) {
  for (const int64_t dim : {64, 128}) {
    check({.documents = packed({140, 65, 1}), .heads = 4, .kv_heads = 2, .head_dim = dim, .fused = true});
    check({.documents = {{40, 140}, {30, 30}}, .heads = 2, .kv_heads = 1, .head_dim = dim});
    check({.documents = packed({150}), .heads = 2, .kv_heads = 1, .head_dim = dim, .window = 70});
  }
}

// As latent attention has them, and the other way round.
TEST(Attention, ValuesOfAnotherWidth) {
  for (const auto& [dim, value_dim] : {std::pair<int64_t, int64_t>{192, 128}, {24, 16}, {40, 8}, {8, 24}}) {
    const auto run = [&](std::vector<std::pair<int32_t, int32_t>> documents, int64_t heads = 2,
                         int64_t window = 0) {
      check({.documents = std::move(documents),
             .heads = heads,
             .kv_heads = 2,
             .head_dim = dim,
             .window = window,
             .value_dim = value_dim});
    };
    run(packed({9, 1, 0, 30}));
    run({{1, 70}, {3, 20}}, 4);
    if (dim == 40) continue;
    run(packed({140}));
    if (dim > 24) continue;
    run(packed({150, 3}), 4, 70);
    run({{70, 270}});
  }
  check({.documents = packed({0}), .head_dim = 24, .value_dim = 16});
}

void check_all_keys(Setup s) {
  s.causal = false;
  check(s);
}

// As towers of pictures have it: frames and windows of any length, which see all of themselves.
TEST(Attention, NotCausal) {
  check_all_keys({.documents = packed({0, 1})});
  check_all_keys({.documents = packed({9, 1, 0, 30, 16}), .heads = 2, .kv_heads = 2, .fused = true});
  check_all_keys({.documents = {{1, 40}, {5, 21}, {0, 4}}, .heads = 8, .kv_heads = 2, .head_dim = 80});
  check_all_keys({.documents = packed({129, 2, 261}), .heads = 4, .kv_heads = 2, .head_dim = 16});
  check_all_keys({.documents = {{70, 600}}, .head_dim = 24, .value_dim = 16});
  check_all_keys({.documents = packed({530}), .head_dim = 8, .sinks = true});
}

TEST(Attention, LargeLogits) { check({.documents = packed({12, 40}), .heads = 2, .logit_scale = 27}); }

void check_sinks(Setup s) {
  s.sinks = true;
  check(s);
}

TEST(Attention, Sinks) {
  check_sinks({.documents = packed({1})});
  check_sinks({.documents = packed({0, 0}), .heads = 2});
  check_sinks({.documents = packed({9, 1, 0, 30}), .heads = 4, .kv_heads = 2, .head_dim = 16});
  check_sinks({.documents = {{1, 40}, {5, 21}, {0, 4}}, .heads = 8, .kv_heads = 2, .head_dim = 64});
  check_sinks({.documents = packed({20, 3}), .heads = 2, .window = 1});
  check_sinks({.documents = packed({150, 3}),
               .heads = 4,
               .kv_heads = 2,
               .head_dim = 16,
               .window = 70,
               .fused = true});
  check_sinks({.documents = {{70, 600}}, .heads = 2, .kv_heads = 1, .head_dim = 16});
  check_sinks({.documents = packed({12, 40}), .heads = 2, .logit_scale = 27});
}

// One that is far above every score takes all weight, one far below none.
TEST(Attention, ExtremeSinks) {
  for (const char* provider : {"eager", "onednn"}) {
    if (kernels<Attention>().find(provider) == nullptr) continue;
    const BoundOps ops =
        bind_kernel<Attention>(provider, {.heads = 2, .kv_heads = 2, .head_dim = 8, .sinks = true});
    Tape tape(false);
    const Tensor x = Tensor::zeros({3, 2, 8}, DType::kF32);
    for (float& value : x.values<float>()) value = 1;
    const Var all = tape.constant(x);
    Attention op = documents_of({.documents = packed({3})}, 1);
    const Tensor y =
        attention(tape, ops, all, all, all, op, tape.constant(Tensor::from(std::vector<float>{1e4f, -1e4f})))
            .value;
    for (int64_t i = 0; i < y.numel(); ++i)
      EXPECT_FLOAT_EQ(y.values<float>()[static_cast<size_t>(i)], i / 8 % 2 == 0 ? 0.0f : 1.0f) << provider;
  }
}

Tensor zeros(const Shape& shape) { return Tensor::zeros(shape, DType::kF32); }

// An op that a change makes wrong.
void refuses(const std::function<void(Attention&)>& change, std::string_view message) {
  Attention op;
  op.q = zeros({5, 4, 8});
  op.k = op.v = zeros({6, 2, 8});
  op.cu_seqlens_q = ints({0, 2, 5});
  op.cu_seqlens_k = ints({0, 2, 6});
  change(op);
  Tape tape;
  expect_error(
      [&] {
        attention(tape, bind_kernel<Attention>("eager", {}), {op.q, {}}, {op.k, {}}, {op.v, {}}, op);
      },
      fmt::format("[attention] {}", message));
}

TEST(Attention, ChecksHeadsAtTheFrontDoor) {
  refuses([](Attention& a) { a.q = {}; }, "q is missing");
  refuses([](Attention& a) { a.q = zeros({5, 32}); }, "q is [5, 32], needs 3 dimensions");
  refuses([](Attention& a) { a.k = zeros({6, 16}); }, "k is [6, 16], needs 3 dimensions");
  refuses([](Attention& a) { a.k = a.v = zeros({6, 2, 9}); }, "k is [6, 2, 9], needs [6, 2, 8]");
  refuses([](Attention& a) { a.v = zeros({5, 2, 8}); }, "v is [5, 2, 8], needs [6, 2, 8]");
  refuses(
      [](Attention& a) {
        a.k = a.v = zeros({6, 3, 8});
      },
      "4 query heads are not a multiple of 3 key heads");
  refuses(
      [](Attention& a) {
        a.k = a.v = zeros({6, 0, 8});
      },
      "4 query heads are not a multiple of 0 key heads");
  refuses([](Attention& a) { a.v = a.v.to(DType::kBF16); }, "v is bfloat16, needs float32");
  refuses([](Attention& a) { a.k = Tensor::zeros({6, 2, 8}, DType::kI32); }, "k is int32, needs float32");
  refuses(
      [](Attention& a) {
        a.q = zeros({5, 8, 4}).transpose(1, 2);
      },
      "q [5, 4, 8] has strides [32, 1, 4], needs them without gaps");
  refuses(
      [](Attention& a) {
        a.k = zeros({6, 2, 9}).narrow(2, 0, 8);
      },
      "k [6, 2, 8] has strides [18, 9, 1], needs them without gaps");
}

TEST(Attention, ChecksDocumentsAtTheFrontDoor) {
  refuses([](Attention& a) { a.cu_seqlens_q = {}; }, "cu_seqlens_q is missing");
  refuses([](Attention& a) { a.cu_seqlens_q = Tensor::zeros({3}, DType::kI64); },
          "cu_seqlens_q is int64, needs int32");
  for (const auto& starts :
       std::vector<std::vector<int32_t>>{{0}, {1, 2, 5}, {0, 2, 4}, {0, 6, 5}, {0, -1, 5}})
    refuses([&](Attention& a) { a.cu_seqlens_q = ints(starts); },
            "cu_seqlens_q must rise from 0 to 5 without falling");
  refuses(
      [](Attention& a) {
        a.cu_seqlens_k = ints({0, 2, 5});
      },
      "cu_seqlens_k must rise from 0 to 6 without falling");
  refuses([](Attention& a) { a.cu_seqlens_k = ints({0, 6}); }, "cu_seqlens_k is [2], needs [3]");
  refuses([](Attention& a) { a.cu_seqlens_k = ints({0, 4, 6}); }, "document 1 has 3 queries but 2 keys");
  refuses([](Attention& a) { a.window = -1; }, "window is -1, needs 0 (none) or more");
  const auto with_window = [](Attention& a) { std::tie(a.window, a.causal) = std::pair{3, false}; };
  refuses(with_window, "window is 3, needs 0 (none) where attention is not causal");
}

TEST(Attention, SinksAtTheFrontDoor) {
  const BoundOps ops = bind_kernel<Attention>("eager", {});
  Tape tape;
  const Var x{Tensor::zeros({5, 4, 8}, DType::kF32), {}};
  const Attention op = documents_of({.documents = packed({5})}, 1);
  const auto expect = [&](const Tensor& sinks, std::string_view message) {
    expect_error([&] { attention(tape, ops, x, x, x, op, {sinks, {}}); }, message);
  };
  expect(Tensor::zeros({2}, DType::kF32), "[attention] sinks is [2], needs [4]");
  expect(ints({1, 2, 3, 4}), "[attention] sinks is int32, needs float32");
}

}  // namespace
}  // namespace temper::ops
