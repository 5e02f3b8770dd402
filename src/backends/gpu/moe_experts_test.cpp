// The GPU's kernels of moe_experts compared with sums in double precision; skipped where there is no GPU.
#include "ops/moe_experts/moe_experts.h"

#include <cmath>
#include <functional>
#include <numeric>

#include "backends/test_support.h"
#include "device/facts.h"
#include "tests/support/gpu.h"

namespace temper::backends {
namespace {

using ops::MoeExperts;

constexpr Device kGpu{DeviceType::kCuda, 0};

enum class Load { kNatural, kZipf, kCrowded };  // crowded: all tokens choose the same experts

struct TestCase {
  int64_t tokens, hidden, width, experts, top_k;
  Load load = Load::kNatural;

  std::string name() const {
    return fmt::format("{} tokens, {} by {}, {} of {} experts, load {}", tokens, hidden, width, top_k,
                       experts, static_cast<int>(load));
  }
  MoeExperts::Signature signature(DType dtype) const { return {dtype, hidden, width, experts, top_k}; }
};

// The top_k experts of each token whose random scores are largest.
std::vector<int32_t> choose(const TestCase& c) {
  std::mt19937 engine(5);
  std::uniform_real_distribution<double> uniform(1e-9, 1);
  std::vector<int32_t> chosen;
  for (int64_t t = 0; t < c.tokens; ++t) {
    std::vector<double> scores(static_cast<size_t>(c.experts));
    for (size_t e = 0; e < scores.size(); ++e) {
      const double share = c.load == Load::kZipf ? 1 / static_cast<double>(e + 1) : 1;
      scores[e] = c.load == Load::kCrowded ? static_cast<double>(e * 7 % scores.size())
                                           : -std::log(-std::log(uniform(engine))) + std::log(share);
    }
    std::vector<int32_t> order(scores.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)];
    });
    chosen.insert(chosen.end(), order.begin(), order.begin() + c.top_k);
  }
  return chosen;
}

// Operands on the CPU, in the kernel's dtype.
struct Operands {
  Tensor x, dy, weights, ids, gate_up, down;

  Operands(const TestCase& c, DType dtype)
      : x(random_tensor({c.tokens, c.hidden}, dtype, 1)),
        dy(random_tensor({c.tokens, c.hidden}, dtype, 2)),
        weights(random_tensor({c.tokens, c.top_k}, DType::kF32, 3)),
        ids(Tensor::from(choose(c)).reshape({c.tokens, c.top_k})),
        gate_up(random_tensor({c.experts * 2 * c.width, c.hidden}, dtype, 4, scale(c.hidden))),
        down(random_tensor({c.experts * c.hidden, c.width}, dtype, 5, scale(c.width))) {}
  static float scale(int64_t depth) { return 1 / std::sqrt(static_cast<float>(depth)); }

  MoeExperts there(int64_t tokens, int64_t experts) const {
    return {.x = x.narrow(0, 0, tokens).on(kGpu),
            .ids = ids.narrow(0, 0, tokens).on(kGpu),
            .weights = weights.narrow(0, 0, tokens).on(kGpu),
            .gate_up = gate_up.on(kGpu),
            .down = down.on(kGpu),
            .experts = experts};
  }
};

struct Results {
  Tensor y, dx, dweights, dgate_up, ddown;
  std::vector<Tensor> all() const { return {y, dx, dweights, dgate_up, ddown}; }
};

Tensor filled(const Shape& shape, float value) {
  const Tensor tensor = Tensor::empty(shape, DType::kF32);
  for (float& element : tensor.values<float>()) element = value;
  return tensor;
}

// As the op defines them, in double precision; gradients of matrices are added to `before`.
Results reference(const TestCase& c, const Operands& o, float before) {
  const int64_t hidden = c.hidden, width = c.width;
  const Tensor x = o.x.to(DType::kF32), dy = o.dy.to(DType::kF32), gate_up = o.gate_up.to(DType::kF32),
               down = o.down.to(DType::kF32);
  const Results r{filled(x.shape(), 0), filled(x.shape(), 0), filled(o.weights.shape(), 0),
                  filled(gate_up.shape(), before), filled(down.shape(), before)};
  std::vector<double> y(static_cast<size_t>(hidden)), dx(y.size());
  const auto size = static_cast<size_t>(width);
  std::vector<double> gate(size), up(size), inner(size);
  for (int64_t t = 0; t < c.tokens; ++t) {
    const float *xs = x.data<float>() + t * hidden, *dys = dy.data<float>() + t * hidden;
    std::fill(y.begin(), y.end(), 0);
    std::fill(dx.begin(), dx.end(), 0);
    for (int64_t j = 0; j < c.top_k; ++j) {
      const int64_t expert = o.ids.data<int32_t>()[t * c.top_k + j];
      const double weight = o.weights.data<float>()[t * c.top_k + j];
      const float *gates = gate_up.data<float>() + expert * 2 * width * hidden, *ups = gates + width * hidden,
                  *downs = down.data<float>() + expert * hidden * width;
      float *dgates = r.dgate_up.data<float>() + expert * 2 * width * hidden, *dups = dgates + width * hidden,
            *ddowns = r.ddown.data<float>() + expert * hidden * width;
      double dweight = 0;
      for (int64_t f = 0; f < width; ++f) {
        double g = 0, u = 0, dinner = 0;
        for (int64_t h = 0; h < hidden; ++h) {
          g += static_cast<double>(gates[f * hidden + h]) * xs[h];
          u += static_cast<double>(ups[f * hidden + h]) * xs[h];
          dinner += static_cast<double>(downs[h * width + f]) * dys[h];
        }
        const double s = 1 / (1 + std::exp(-g)), product = g * s * u;
        for (int64_t h = 0; h < hidden; ++h) {
          y[static_cast<size_t>(h)] += weight * product * downs[h * width + f];
          ddowns[h * width + f] += static_cast<float>(weight * product * dys[h]);
        }
        dweight += dinner * product;
        const double dg = weight * dinner * u * s * (1 + g * (1 - s)), du = weight * dinner * g * s;
        for (int64_t h = 0; h < hidden; ++h) {
          dx[static_cast<size_t>(h)] += dg * gates[f * hidden + h] + du * ups[f * hidden + h];
          dgates[f * hidden + h] += static_cast<float>(dg * xs[h]);
          dups[f * hidden + h] += static_cast<float>(du * xs[h]);
        }
      }
      r.dweights.data<float>()[t * c.top_k + j] = static_cast<float>(dweight);
    }
    for (int64_t h = 0; h < hidden; ++h) {
      r.y.data<float>()[t * hidden + h] = static_cast<float>(y[static_cast<size_t>(h)]);
      r.dx.data<float>()[t * hidden + h] = static_cast<float>(dx[static_cast<size_t>(h)]);
    }
  }
  return r;
}

// What the pool gives next was not zero.
void poison() {
  constexpr int64_t kBytes = 32 << 20;
  const float nan = std::nanf("");
  for (const int64_t bytes : {kBytes, kBytes / 8, kBytes / 64, kBytes / 512})
    filled({bytes / 4}, nan).on(kGpu, MemoryTag::kWorkspace);
}

Results run(const ops::Kernel<MoeExperts>& kernel, const TestCase& c, const Operands& o, DType gradients,
            float before, bool accumulate) {
  const MoeExperts op = o.there(c.tokens, c.experts);
  const auto target = [&](const Tensor& matrix) {
    return GradTarget{filled(matrix.shape(), before).to(gradients).on(kGpu), accumulate};
  };
  const GradTarget gate_up = target(o.gate_up), down = target(o.down);
  const Tensor dy = o.dy.on(kGpu);
  poison();
  const MoeExperts::Output out = kernel.forward(op, true);
  poison();
  const MoeExperts::Grads grads = kernel.backward(op, out, dy, {true, true}, gate_up, down);
  // What is not wanted is not made, and changes nothing else.
  EXPECT_TRUE(same_bits(kernel.forward(op, false).y.on({}), out.y.on({}))) << c.name();
  return {out.y.on({}), grads.x.on({}), grads.weights.on({}), gate_up.buffer.on({}), down.buffer.on({})};
}

void check(const std::string& name, const ops::Kernel<MoeExperts>& kernel, const TestCase& c, DType dtype) {
  const Operands operands(c, dtype);
  static constexpr const char* kNames[] = {"y", "dx", "dweights", "dgate_up", "ddown"};
  for (const bool accumulate : {false, true}) {
    const float before = accumulate ? 0.5f : std::nanf("");
    const auto expected = reference(c, operands, accumulate ? 0.5f : 0.f).all();
    for (const DType gradients : {DType::kF32, DType::kBF16}) {
      const auto found = run(kernel, c, operands, gradients, before, accumulate).all();
      const auto again = run(kernel, c, operands, gradients, before, accumulate).all();
      for (size_t i = 0; i < found.size(); ++i) {
        const bool rounds = dtype != DType::kF32 || (i >= 3 && gradients == DType::kBF16);
        EXPECT_LT(difference(found[i].to(DType::kF32), expected[i]), rounds ? 2e-2 : 2e-5)
            << name << ", " << to_string(dtype) << ", " << c.name() << ": " << kNames[i];
        EXPECT_TRUE(same_bits(found[i], again[i])) << name << ", " << c.name() << ": " << kNames[i];
      }
    }
  }
}

// A token's result has the same bits in batches of 1, 4, 7 and 64 as in the whole.
void check_batches(const std::string& name, const ops::Kernel<MoeExperts>& kernel, const TestCase& c,
                   DType dtype) {
  const Operands operands(c, dtype);
  const Tensor whole = kernel.forward(operands.there(c.tokens, c.experts), false).y.on({});
  for (const int64_t tokens : {1, 4, 7, 64}) {
    const Tensor part = kernel.forward(operands.there(tokens, c.experts), false).y.on({});
    EXPECT_TRUE(same_bits(part, whole.narrow(0, 0, tokens))) << name << ", " << tokens << " of " << c.name();
  }
}

using Check = std::function<void(const std::string&, const ops::Kernel<MoeExperts>&, const TestCase&, DType)>;

// With every kernel of this GPU that accepts the case.
void with_kernels(const std::vector<TestCase>& cases, const Check& check) {
  if (const std::string why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  const HardwareFacts facts = detect_hardware("cuda");
  int accepted = 0;
  for (const auto& [name, kernel] : ops::kernels<MoeExperts>().entries()) {
    if (kernel.compose != nullptr || kernel.hardware != hardware::kGpu) continue;
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16})
      for (const TestCase& c : cases)
        if (!kernel.accepts(c.signature(dtype), facts))
          check(std::string(name), kernel, c, dtype), ++accepted;
  }
  EXPECT_GT(accepted, 0);
}

TEST(GpuMoeExperts, NaturalLoads) {
  with_kernels({{64, 64, 32, 8, 2}, {300, 136, 72, 5, 3}, {520, 128, 136, 2, 1}, {1000, 64, 48, 3, 2}},
               check);
}
TEST(GpuMoeExperts, UnevenLoads) {
  with_kernels({{700, 64, 64, 12, 4, Load::kZipf}, {400, 64, 40, 9, 2, Load::kCrowded}}, check);
}
TEST(GpuMoeExperts, FewTokens) {
  with_kernels({{1, 264, 136, 16, 8}, {7, 264, 136, 16, 8}, {1, 64, 32, 1, 1}, {7, 72, 40, 512, 8}}, check);
}
// Depths with steps that are not full, and choices of one expert by several tokens.
TEST(GpuMoeExperts, FewTokensWithoutPlan) {
  with_kernels({{1, 2048, 768, 12, 8}, {4, 544, 288, 12, 10}, {3, 32, 1056, 5, 1}, {2, 256, 64, 16, 16}},
               check);
}
TEST(GpuMoeExperts, NumbersOfExperts) {
  with_kernels({{200, 64, 32, 1, 1}, {200, 64, 32, 2, 2}, {200, 64, 32, 512, 8}}, check);
}
TEST(GpuMoeExperts, TilesThatHideStores) { with_kernels({{300, 576, 328, 3, 2}}, check); }
TEST(GpuMoeExperts, BatchesOfOtherSizes) {
  with_kernels({{1000, 264, 136, 8, 4}, {900, 640, 520, 16, 8, Load::kZipf}, {300, 1056, 416, 16, 8}},
               check_batches);
}
TEST(GpuMoeExperts, OddSizes) { with_kernels({{130, 37, 21, 6, 3}, {70, 8, 1, 3, 1}}, check); }
TEST(GpuMoeExperts, NoTokens) { with_kernels({{0, 64, 32, 4, 2}}, check); }

}  // namespace
}  // namespace temper::backends
