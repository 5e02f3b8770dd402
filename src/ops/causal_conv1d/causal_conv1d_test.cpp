#include "ops/causal_conv1d/causal_conv1d.h"

#include <cmath>

#include "ops/slots_test_support.h"
#include "primitives/primitives.h"
#include "tests/support/op_testing.h"

namespace temper::ops {
namespace {

using namespace op_testing;

const RequiredKernels<CausalConv1dUpdate> kCausalConv1dUpdateKernels{
    {.channels = 8192, .width = 4}, kAll, {{"simd", "simd", kCpu, kWide}, {"cuda", "cuda", kGpu, kWide}}};

const RequiredKernels<CausalConv1d> kCausalConv1dKernels{
    {.channels = 8192, .width = 4},
    kAll,
    {{"simd", "simd", kCpu, kWide},
     {"cuda", "cuda", kGpu, kWide, [](const CausalConv1d::Signature& s) { return s.width <= 8; }}}};
namespace p = primitives;

struct Setup {
  std::vector<int32_t> lengths;
  int64_t channels = 5, width = 4;
  std::vector<int32_t> continued = {};
  bool initial = false;
  bool fused = false;  // x is a part of wider rows
  double scale = 1;
  int repeats = 1;

  int64_t documents() const { return std::ssize(lengths); }
  int64_t tokens() const {
    int64_t sum = 0;
    for (const int32_t length : lengths) sum += length;
    return sum;
  }
  Documents rows() const {
    std::vector<int32_t> starts{0};
    for (const int32_t length : lengths) starts.push_back(starts.back() + length);
    return {ints(starts), continued.empty() ? Tensor() : ints(continued)};
  }
};

double silu(double x) { return x / (1 + std::exp(-x)); }

// y, then the final windows.
Doubles reference(const Setup& s, const std::vector<Doubles>& inputs) {
  const Doubles &x = inputs[0], &weight = inputs[1];
  const int64_t kept = s.width - 1;
  Doubles y, finals;
  std::vector<Doubles> windows;
  int64_t first = 0;
  for (int64_t d = 0; d < s.documents(); ++d) {
    const auto at = static_cast<size_t>(d);
    Doubles all(static_cast<size_t>(kept * s.channels));
    if (!s.continued.empty() && s.continued[at] >= 0)
      all = windows[static_cast<size_t>(s.continued[at])];
    else if (s.initial)
      std::copy_n(inputs[2].begin() + d * kept * s.channels, kept * s.channels, all.begin());
    all.insert(all.end(), x.begin() + first * s.channels, x.begin() + (first + s.lengths[at]) * s.channels);
    for (int64_t t = 0; t < s.lengths[at]; ++t)
      for (int64_t c = 0; c < s.channels; ++c) {
        double sum = 0;
        for (int64_t j = 0; j < s.width; ++j) sum += weight[c * s.width + j] * all[(t + j) * s.channels + c];
        y.push_back(silu(sum));
      }
    windows.emplace_back(all.end() - kept * s.channels, all.end());
    finals.insert(finals.end(), windows.back().begin(), windows.back().end());
    first += s.lengths[at];
  }
  y.insert(y.end(), finals.begin(), finals.end());
  return y;
}

void check(const Setup& s) {
  const Shape x{s.tokens(), s.channels}, weight{s.channels, s.width},
      window{s.documents(), s.width - 1, s.channels};
  Case c;
  c.name = fmt::format("{} documents, x {}, width {}{}{}", s.documents(), to_string(x), s.width,
                       s.initial ? ", initial windows" : "", s.continued.empty() ? "" : ", continued");
  c.inputs = {{"x", x, normal(1, x, s.scale)}, {"weight", weight, normal(2, weight, 0.5), Role::kParameter}};
  if (s.fused) c.inputs[0].padding = {1, 3, 2};
  if (s.initial) c.inputs.push_back({"initial", window, normal(3, window)});
  c.terms = std::max(s.width, s.tokens());
  c.repeats = s.repeats;
  c.reference = [s](const std::vector<Doubles>& inputs) { return reference(s, inputs); };
  c.run = [s, op = CausalConv1d{{}, {}, s.rows()}](Tape& tape, const BoundOps& ops,
                                                   const std::vector<Var>& v) {
    const Convolved out = causal_conv1d(tape, ops, v[0], v[1], s.initial ? v[2] : Var{}, op, true);
    const auto flat = [&](const Var& part) { return p::reshape(tape, part, {part.value.numel()}); };
    return Result{p::concat_first(tape, {flat(out.y), flat(out.final_window)}), {}};
  };
  check_every_kernel<CausalConv1d>(c, {.channels = s.channels, .width = s.width});
}

TEST(CausalConv1d, Documents) {
  for (const int64_t width : {2, 3, 4, 7}) check({.lengths = {9, 1, 2, 0, 3, 33}, .width = width});
  check({.lengths = {1}});
  check({.lengths = {0, 0, 5}});
  check({.lengths = {0}});
}

TEST(CausalConv1d, Channels) {
  for (const int64_t channels : {1, 3, 16, 17, 64, 130}) check({.lengths = {5, 12}, .channels = channels});
  check({.lengths = {70, 300}, .channels = 40});
}

TEST(CausalConv1d, InitialWindows) {
  check({.lengths = {5, 0, 1, 2, 9}, .initial = true});
  check({.lengths = {3, 40}, .channels = 24, .width = 2, .initial = true, .fused = true});
}

TEST(CausalConv1d, DocumentsThatContinueOthers) {
  check({.lengths = {6, 4, 3, 7, 0, 2}, .continued = {-1, 0, 0, -1, 3, 3}});
  check({.lengths = {2, 1, 5}, .continued = {-1, 0, 0}, .initial = true});
  check({.lengths = {0, 4, 3}, .continued = {-1, 0, 0}, .initial = true});
}

TEST(CausalConv1d, ColumnsOfWiderRows) { check({.lengths = {9, 4}, .channels = 33, .fused = true}); }

TEST(CausalConv1d, LargeValues) { check({.lengths = {20}, .scale = 30}); }

TEST(CausalConv1d, AHundredPassesGiveTheSameBits) {
  check({.lengths = {40, 70, 3}, .channels = 16, .repeats = 100});
}

// What pieces give is what the whole gives, bit by bit: each continues from the window of the one before.
TEST(CausalConv1d, AnySplitGivesTheSame) {
  constexpr int64_t kTokens = 12, kChannels = 20, kWidth = 4;
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const BoundKernel& kernel : bind_everywhere<CausalConv1d>({dtype, kChannels, kWidth})) {
      SCOPED_TRACE(kernel.provider);
      Tape tape(false);
      const auto on = [&](const Tensor& x) { return x.on(kernel.device); };
      const Tensor x = on(tensor_of(normal(1, {kTokens, kChannels}), {kTokens, kChannels}, dtype));
      const Var weight =
          tape.constant(on(tensor_of(normal(2, {kChannels, kWidth}), {kChannels, kWidth}, dtype)));
      const auto run = [&](int64_t first, int64_t count, const Var& window) {
        const CausalConv1d op{{}, {}, {ints({0, static_cast<int32_t>(count)})}};
        return causal_conv1d(tape, kernel.ops, tape.constant(x.narrow(0, first, count)), weight, window, op,
                             true);
      };
      const Convolved whole = run(0, kTokens, {});
      for (int64_t cut = 0; cut <= kTokens; ++cut) {
        const Convolved begin = run(0, cut, {}), end = run(cut, kTokens - cut, begin.final_window);
        const Var both = p::concat_first(tape, {begin.y, end.y});
        EXPECT_EQ(values_of(both.value), values_of(whole.y.value)) << cut;
        EXPECT_EQ(values_of(end.final_window.value), values_of(whole.final_window.value)) << cut;
      }
    }
}

// On-chip memory of 1,572,864 bits, as an NPU has it, where the first tiling wants more: the one that fits is
// taken, shown with both figures, and gives the same numbers.
TEST(CausalConv1d, ASmallerTilingGivesTheSame) {
  constexpr int64_t kTokens = 150, kChannels = 1100, kWidth = 4;
  if (kernels<CausalConv1d>().find("simd") == nullptr) GTEST_SKIP() << "without the kernel of the CPU";
  const auto bind = [&](int64_t scratch_bytes) {
    HardwareFacts facts;
    facts.scratch_bytes = scratch_bytes;
    facts.scratch_name = "unified buffer";
    Binder binder({.fallback = "simd"}, facts);
    binder.bind<CausalConv1d>({{DType::kF32, kChannels, kWidth}});
    return binder.finish();
  };
  const Documents documents{ints({0, 70, 110, kTokens}), ints({-1, 0, 0})};
  const auto tensor = [](uint64_t seed, const Shape& shape) {
    return tensor_of(normal(seed, shape), shape, DType::kF32);
  };
  const Tensor x = tensor(1, {kTokens, kChannels}), weight = tensor(2, {kChannels, kWidth}),
               dy = tensor(3, {kTokens, kChannels});
  struct Found {
    Doubles y, x, weight;
  };
  const auto run = [&](const BoundOps& ops) {
    Tape tape;
    const Var vx = tape.variable(x), vw = tape.variable(weight);
    const Var y = causal_conv1d(tape, ops, vx, vw, {}, {{}, {}, documents}).y;
    tape.backward(y, dy);
    return Found{values_of(y.value), values_of(vx.slot->take()), values_of(vw.slot->take())};
  };
  const BoundOps whole = bind(0), half = bind(192 << 10), quarter = bind(64 << 10);
  EXPECT_EQ(whole.choices()[0].tilings,
            std::vector<std::string>{"64 tokens of 1024 channels, 2,523,136 bits"});
  EXPECT_EQ(
      half.choices()[0].tilings,
      std::vector<std::string>{"32 tokens of 512 channels, 737,280 bits of 1,572,864 of the unified buffer"});
  EXPECT_EQ(quarter.get<CausalConv1d>().tiling, 2);
  const Found expected = run(whole);
  for (const BoundOps* ops : {&half, &quarter}) {
    const Found found = run(*ops);
    EXPECT_EQ(found.y, expected.y);
    EXPECT_EQ(found.x, expected.x);
    EXPECT_NE(found.weight, expected.weight);  // other sums: the kernel did take the tiling
    for (size_t i = 0; i < found.weight.size(); ++i)
      EXPECT_NEAR(found.weight[i], expected.weight[i], 1e-4) << i;
  }
  expect_error(
      [&] { bind(8 << 10); },
      "[model.ops_implementation] causal_conv1d_implementation=simd cannot run: needs 118,784 bits, the "
      "unified buffer has 65,536. Set it to one of [eager]");
}

TEST(CausalConv1dUpdate, MovesTheWindow) {
  for (const auto& [width, in_slots] :
       {std::pair<int64_t, bool>{2, false}, {4, false}, {5, false}, {4, true}}) {
    constexpr int64_t kSequences = 3, kChannels = 37;
    const Shape x{kSequences, kChannels}, weight{kChannels, width}, window{kSequences, width - 1, kChannels};
    Case c;
    c.name = fmt::format("x {}, width {}", to_string(x), width);
    c.inputs = {{"x", x, normal(1, x), Role::kVariable, Padding{1, 1, 2}},
                {"weight", weight, normal(2, weight, 0.5)},
                {"window", window, normal(3, window)}};
    c.inference = true;
    c.terms = width;
    c.reference = [=](const std::vector<Doubles>& inputs) {
      Doubles y, moved;
      for (int64_t s = 0; s < kSequences; ++s) {
        Doubles all(inputs[2].begin() + s * (width - 1) * kChannels,
                    inputs[2].begin() + (s + 1) * (width - 1) * kChannels);
        all.insert(all.end(), inputs[0].begin() + s * kChannels, inputs[0].begin() + (s + 1) * kChannels);
        for (int64_t k = 0; k < kChannels; ++k) {
          double sum = 0;
          for (int64_t j = 0; j < width; ++j) sum += inputs[1][k * width + j] * all[j * kChannels + k];
          y.push_back(silu(sum));
        }
        moved.insert(moved.end(), all.begin() + kChannels, all.end());
      }
      y.insert(y.end(), moved.begin(), moved.end());
      return y;
    };
    c.run = [in_slots = in_slots](Tape& tape, const BoundOps& ops, const std::vector<Var>& v) {
      const Tensor kept = v[2].value.clone();
      if (!in_slots)
        return Result{tape.constant(causal_conv1d_update(ops, {v[0].value, v[1].value, kept})), {kept}};
      const InSlots scattered(kept);
      const Tensor y = causal_conv1d_update(ops, {v[0].value, v[1].value, scattered.all, scattered.slots});
      return Result{tape.constant(y), {scattered.rows()}};
    };
    check_every_kernel<CausalConv1dUpdate>(c, {.channels = kChannels, .width = width});
  }
}

struct Arguments {
  Tensor x = Tensor::zeros({5, 6}, DType::kF32), weight = Tensor::zeros({6, 4}, DType::kF32), initial = {};
  Documents documents{ints({0, 2, 5})};
};

void expect_refused(const std::function<void(Arguments&)>& change, std::string_view message) {
  const BoundOps ops = bind_kernel<CausalConv1d>("eager", {});
  Tape tape;
  Arguments a;
  change(a);
  expect_error(
      [&] {
        causal_conv1d(tape, ops, {a.x, {}}, {a.weight, {}}, {a.initial, {}}, {{}, {}, a.documents});
      },
      message);
}

TEST(CausalConv1d, ChecksAtTheFrontDoor) {
  const auto f32 = [](Shape shape) { return Tensor::zeros(shape, DType::kF32); };
  expect_refused([&](Arguments& a) { a.x = {}; }, "[causal_conv1d] x is missing");
  expect_refused([&](Arguments& a) { a.x = f32({5}); }, "[causal_conv1d] x is [5], needs 2 dimensions");
  expect_refused(
      [&](Arguments& a) {
        a.weight = f32({5, 4});
      },
      "[causal_conv1d] weight is [5, 4], needs [6, 4]");
  expect_refused(
      [&](Arguments& a) {
        a.weight = f32({6, 1});
      },
      "[causal_conv1d] weight is [6, 1], needs 2 to 16 columns");
  expect_refused(
      [&](Arguments& a) {
        a.weight = f32({6, 17});
      },
      "[causal_conv1d] weight is [6, 17], needs 2 to 16 columns");
  expect_refused([&](Arguments& a) { a.weight = a.weight.to(DType::kBF16); },
                 "[causal_conv1d] weight is bfloat16, needs float32");
  expect_refused(
      [&](Arguments& a) {
        a.x = f32({6, 5}).transpose(0, 1);
      },
      "[causal_conv1d] x [5, 6] has strides [1, 5], needs them without gaps");
  expect_refused(
      [&](Arguments& a) {
        a.initial = f32({2, 4, 6});
      },
      "[causal_conv1d] initial is [2, 4, 6], needs [2, 3, 6]");
  expect_refused(
      [&](Arguments& a) {
        a.initial = f32({1, 3, 6});
      },
      "[causal_conv1d] initial is [1, 3, 6], needs [2, 3, 6]");
  expect_refused(
      [&](Arguments& a) {
        a.initial = f32({2, 3, 6}).to(DType::kBF16);
      },
      "[causal_conv1d] initial is bfloat16, needs float32");
  const BoundOps step = bind_kernel<CausalConv1dUpdate>("eager", {});
  expect_error(
      [&] {
        causal_conv1d_update(step, {f32({2, 6}), f32({6, 4}), f32({2, 2, 6})});
      },
      "[causal_conv1d_update] window is [2, 2, 6], needs [2, 3, 6]");
  expect_error(
      [&] {
        causal_conv1d_update(step, {f32({2, 6}), f32({6, 4}), f32({3, 3, 6}), ints({0, 3})});
      },
      "[causal_conv1d_update] slots has 3, needs 0 to 2");
}

TEST(CausalConv1d, ChecksDocuments) {
  for (const auto& starts : std::vector<std::vector<int32_t>>{{0}, {1, 2, 5}, {0, 2, 4}, {0, 6, 5}})
    expect_refused([&](Arguments& a) { a.documents.starts = ints(starts); },
                   "[causal_conv1d] starts must rise from 0 to 5 without falling");
  expect_refused([&](Arguments& a) { a.documents.continued = ints({-1}); },
                 "[causal_conv1d] continued is [1], needs [2]");
  expect_refused(
      [&](Arguments& a) {
        a.documents.continued = ints({-1, 1});
      },
      "[causal_conv1d] document 1 continues document 1, needs -1 or one before it that continues none");
  expect_refused(
      [&](Arguments& a) {
        a.documents = {ints({0, 2, 4, 5}), ints({-1, 0, 1})};
      },
      "[causal_conv1d] document 2 continues document 1, needs -1 or one before it that continues none");
}

}  // namespace
}  // namespace temper::ops
