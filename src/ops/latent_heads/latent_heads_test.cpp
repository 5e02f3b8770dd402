#include "ops/latent_heads/latent_heads.h"

#include <array>

#include "primitives/primitives.h"
#include "tests/support/op_testing.h"

namespace temper::ops {
namespace {

using namespace op_testing;

const RequiredKernels<LatentHeads> kLatentHeadsKernels{
    {.nope_dim = 128, .rope_dim = 64, .value_dim = 128},
    kAll,
    {{"simd", "simd", kCpu, kWide}, {"cuda", "cuda", kGpu, kWide}}};

struct Sizes {
  int64_t tokens = 5, heads = 3, nope = 16, rope = 8, value = 12;
  bool strided = false;  // k_rope is a view of wider rows
  int64_t width() const { return heads * (nope + value); }
};

// Each token's keys, then its values.
Doubles expand(const Sizes& o, const std::vector<Doubles>& inputs) {
  Doubles y;
  for (int64_t t = 0; t < o.tokens; ++t) {
    const double *kv = inputs[0].data() + t * o.width(), *shared = inputs[1].data() + t * o.rope;
    for (int64_t h = 0; h < o.heads; ++h) {
      const double* own = kv + h * (o.nope + o.value);
      y.insert(y.end(), own, own + o.nope);
      y.insert(y.end(), shared, shared + o.rope);
    }
    for (int64_t h = 0; h < o.heads; ++h) {
      const double* own = kv + h * (o.nope + o.value) + o.nope;
      y.insert(y.end(), own, own + o.value);
    }
  }
  return y;
}

Var side_by_side(Tape& tape, const ExpandedHeads& heads) {
  const auto flat = [&](const Var& x) {
    return primitives::reshape(tape, x, {x.shape()[0], x.shape()[1] * x.shape()[2]});
  };
  return primitives::concat_last(tape, flat(heads.k), flat(heads.v));
}

void check_sizes(const Sizes& o) {
  const Shape kv{o.tokens, o.width()}, k{o.tokens, o.rope};
  Case c;
  c.name = fmt::format("{} tokens of {} heads of {} + {} and {}", o.tokens, o.heads, o.nope, o.rope, o.value);
  c.inputs = {{"kv", kv, normal(1, kv)}, {"k_rope", k, normal(2, k)}};
  if (o.strided) c.inputs[1].padding = {1, 5, 3};
  c.terms = o.heads;
  c.reference = [=](const std::vector<Doubles>& inputs) { return expand(o, inputs); };
  c.run = [=](Tape& tape, const BoundOps& ops, const std::vector<Var>& v) {
    LatentHeads op;
    op.heads = o.heads;
    op.nope_dim = o.nope;
    return Result{side_by_side(tape, latent_heads(tape, ops, v[0], v[1], op)), {}};
  };
  check_every_kernel<LatentHeads>(c, {.nope_dim = o.nope, .rope_dim = o.rope, .value_dim = o.value});
}

TEST(LatentHeads, EveryKernelAgrees) {
  check_sizes({.nope = 128, .rope = 64, .value = 128});
  for (const int64_t heads : {1, 2, 16, 33}) check_sizes({.heads = heads});
  check_sizes({.nope = 1, .rope = 2, .value = 1});
  check_sizes({.nope = 7, .rope = 34, .value = 9, .strided = true});
  check_sizes({.tokens = 300, .heads = 8, .nope = 24, .rope = 16, .value = 24});
  check_sizes({.tokens = 1, .heads = 4});
  check_sizes({.tokens = 0});
}

// Of kernels that say so: a token has the same bits alone and among others.
TEST(LatentHeads, ATokenDoesNotDependOnTheOthers) {
  constexpr int64_t kTokens = 64, kHeads = 5, kNope = 16, kRope = 8, kValue = 12;
  constexpr int64_t kWidth = kHeads * (kNope + kValue);
  const Tensor kv = tensor_of(normal(1, {kTokens, kWidth}), {kTokens, kWidth}, DType::kBF16),
               k = tensor_of(normal(2, {kTokens, kRope}), {kTokens, kRope}, DType::kBF16);
  for (const BoundKernel& kernel : bind_everywhere<LatentHeads>({DType::kBF16, kNope, kRope, kValue})) {
    if (!kernel.ops.get<LatentHeads>().batch_invariant) continue;
    const auto values = [&](int64_t tokens) {
      LatentHeads op;
      op.heads = kHeads;
      op.nope_dim = kNope;
      Tape tape;
      const Var vkv = tape.variable(kv.narrow(0, 0, tokens).on(kernel.device)),
                vk = tape.variable(k.narrow(0, 0, tokens).on(kernel.device));
      const Var y = side_by_side(tape, latent_heads(tape, kernel.ops, vkv, vk, op));
      tape.backward(y, y.value);
      return std::array{values_of(y.value), values_of(vkv.slot->take()), values_of(vk.slot->take())};
    };
    const auto all = values(kTokens);
    for (const int64_t tokens : {1, 7}) {
      const auto some = values(tokens);
      for (size_t i = 0; i < all.size(); ++i)
        EXPECT_TRUE(std::equal(some[i].begin(), some[i].end(), all[i].begin())) << kernel.provider;
    }
  }
}

TEST(LatentHeads, ChecksAtTheFrontDoor) {
  const BoundOps ops = bind_kernel<LatentHeads>("eager", {});
  Tape tape;
  const auto f32 = [](const Shape& shape) { return Tensor::zeros(shape, DType::kF32); };
  struct Call {
    Tensor kv, k_rope;
    int64_t heads = 2, nope = 8;
  };
  const auto refuses = [&](const std::function<void(Call&)>& change, std::string_view message) {
    Call c{f32({3, 40}), f32({3, 4})};
    change(c);
    LatentHeads op;
    op.heads = c.heads;
    op.nope_dim = c.nope;
    expect_error([&] { latent_heads(tape, ops, tape.constant(c.kv), tape.constant(c.k_rope), op); },
                 fmt::format("[latent_heads] {}", message));
  };
  refuses([](Call& c) { c.kv = {}; }, "kv is missing");
  refuses(
      [&](Call& c) {
        c.kv = f32({3, 41}).narrow(1, 0, 40);
      },
      "kv [3, 40] has strides [41, 1], needs them without gaps");
  refuses([&](Call& c) { c.k_rope = f32({2, 4}); }, "k_rope is [2, 4], needs [3, 4]");
  refuses([](Call& c) { c.k_rope = c.k_rope.to(DType::kF16); }, "k_rope is float16, needs float32");
  refuses([](Call& c) { c.heads = 3; }, "kv is [3, 40], needs the width of 3 heads of more than 8 entries");
  refuses([](Call& c) { c.nope = 20; }, "kv is [3, 40], needs the width of 2 heads of more than 20 entries");
}

}  // namespace
}  // namespace temper::ops
