// The mixer in bfloat16 compared with a computation in double that rounds exactly where the map says:
// training, prefill and decoding give its bits, except for values that float32 sums leave on the other side
// of a tie. A computation that rounds otherwise at any one point gives others.
#include "mixers/gated_delta/rounding_map.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/files.h"
#include "mixers/gated_delta/delta_pages.h"
#include "mixers/gated_delta/gated_delta.h"

namespace temper::mixers {
namespace {

using Doubles = std::vector<double>;

constexpr int64_t kTokens = 70;
const GatedDeltaConfig kConfig{
    .hidden = 48, .key_heads = 2, .heads = 4, .key_dim = 16, .value_dim = 16, .width = 4};

Doubles doubles(const Tensor& tensor) {
  const Tensor wide = tensor.to(DType::kF32).contiguous();
  const auto values = wide.values<float>();
  return {values.begin(), values.end()};
}

// The mixer with weights of its own.
struct Bench {
  explicit Bench(const char* kernels)
      : mixer(gated_delta(kConfig)),
        parameters(table_of(*mixer), DType::kBF16, {}),
        ops(bind(*mixer, kernels)),
        bound(mixer->bind({parameters, ops, rope, routers})),
        x(Tensor::empty({kTokens, kConfig.hidden}, DType::kBF16)) {
    parameters.initialize(3, 0.15);
    fill(x, 1, 0);
    fill(parameters.value("delta.a_log"), 0.5, 0);
    fill(parameters.value("delta.dt_bias"), 0.5, -1);
    fill(parameters.value("delta.norm.weight"), 0.2, 1);
    fill(parameters.value("delta.conv.weight"), 0.5, 0);
  }
  static WeightTable table_of(const layers::Mixer& mixer) {
    WeightTable table;
    layers::WeightScope scope(table, "", "");
    mixer.declare(scope);
    return table;
  }
  static ops::BoundOps bind(const layers::Mixer& mixer, const char* kernels) {
    ops::Binder binder({.fallback = kernels}, detect_cpu());
    layers::OpScope scope(binder, "", DType::kBF16);
    mixer.name_ops(scope);
    return binder.finish();
  }
  void fill(const Tensor& to, double deviation, double mean) {
    std::normal_distribution<float> normal(static_cast<float>(mean), static_cast<float>(deviation));
    std::vector<float> values;
    for (int64_t i = 0; i < to.numel(); ++i) values.push_back(normal(random));
    to.copy_from(Tensor::from(values).reshape(to.shape()));
  }
  Doubles weight(const char* name) const { return doubles(parameters.value(std::string("delta.") + name)); }

  Tensor whole(Tape& tape) const {
    layers::Pass pass;
    pass.cu_seqlens_q = Tensor::from(std::vector<int32_t>{0, static_cast<int32_t>(kTokens)});
    return bound->forward(tape, tape.variable(x), pass).value;
  }
  // In pieces, each behind what those before it left.
  Doubles in_pieces(const std::vector<int64_t>& pieces, bool decodes) const {
    const DeltaPages kept(kConfig, 1, DType::kBF16);
    Doubles all;
    for (int64_t i = 0, first = 0; i < static_cast<int64_t>(pieces.size()); first += pieces[i++]) {
      Tape tape(false);
      layers::PagedBatch batch;
      batch.sequences = {Tensor::from(std::vector<int32_t>{0, static_cast<int32_t>(pieces[i])}),
                         Tensor::from(std::vector<int32_t>{static_cast<int32_t>(first)}),
                         Tensor::from(std::vector<int32_t>{0}).reshape({1, 1})};
      batch.slots = Tensor::from(std::vector<int32_t>{0});
      batch.decoding = decodes ? 1 : 0;
      layers::Pass pass;
      pass.batch = &batch;
      const Doubles found =
          doubles(bound->forward_batch(tape, tape.constant(x.narrow(0, first, pieces[i])), pass, kept).value);
      all.insert(all.end(), found.begin(), found.end());
    }
    return all;
  }

  std::mt19937 random{17};
  std::shared_ptr<const layers::Mixer> mixer;
  layers::ParameterStore parameters;
  ops::BoundOps ops;
  layers::RopeTableSet rope{128, {}};
  layers::RouterSet routers;
  std::unique_ptr<layers::BoundMixer> bound;
  Tensor x;
};

// In double, rounded at the points of the map; at `other` the other way.
class Reference {
 public:
  Reference(const Bench& bench, std::optional<DeltaPoint> other) : bench_(bench), other_(other) {}

  Doubles run() const {
    const int64_t c = kConfig.channels();
    const Doubles qkvz = product(doubles(bench_.x), bench_.weight("qkvz.weight"), DeltaPoint::kProjections),
                  ba = product(doubles(bench_.x), bench_.weight("ba.weight"), DeltaPoint::kGateProjections),
                  qkv = convolution(qkvz, bench_.weight("conv.weight"));
    Doubles normed;
    std::vector<Doubles> states(static_cast<size_t>(kConfig.heads), Doubles(16 * 16));
    for (int64_t t = 0; t < kTokens; ++t)
      for (int64_t h = 0; h < kConfig.heads; ++h) {
        const Doubles y = step(&qkv[static_cast<size_t>(t * c)], &ba[static_cast<size_t>(t * 8)], h,
                               states[static_cast<size_t>(h)]);
        const double* z = &qkvz[static_cast<size_t>(t * (c + kConfig.values()) + c + h * 16)];
        double squares = 0;
        for (const double value : y) squares += value * value;
        const Doubles weight = bench_.weight("norm.weight");
        for (size_t i = 0; i < 16; ++i)
          normed.push_back(at(DeltaPoint::kGatedNorm, y[i] / std::sqrt(squares / 16 + kConfig.norm_eps) *
                                                          weight[i] * z[i] / (1 + std::exp(-z[i]))));
      }
    return product(normed, bench_.weight("output.weight"), DeltaPoint::kOutput);
  }

 private:
  double at(DeltaPoint point, double value) const {
    const bool rounds = (dtype_at(point, DType::kBF16) == DType::kBF16) != (point == other_);
    return rounds ? static_cast<float>(BFloat16(static_cast<float>(value))) : value;
  }
  // x [kTokens, in] wᵀ, w [out, in].
  Doubles product(const Doubles& x, const Doubles& w, DeltaPoint point) const {
    Doubles y;
    const size_t in = x.size() / kTokens, out = w.size() / in;
    for (size_t t = 0; t < kTokens; ++t)
      for (size_t o = 0; o < out; ++o) {
        double sum = 0;
        for (size_t i = 0; i < in; ++i) sum += x[t * in + i] * w[o * in + i];
        y.push_back(at(point, sum));
      }
    return y;
  }
  Doubles convolution(const Doubles& qkvz, const Doubles& weight) const {
    Doubles y;
    const int64_t wide = kConfig.channels() + kConfig.values();
    for (int64_t t = 0; t < kTokens; ++t)
      for (int64_t channel = 0; channel < kConfig.channels(); ++channel) {
        double a = 0;
        for (int64_t j = std::max<int64_t>(0, 3 - t); j < 4; ++j)
          a += weight[static_cast<size_t>(channel * 4 + j)] *
               qkvz[static_cast<size_t>((t - 3 + j) * wide + channel)];
        y.push_back(at(DeltaPoint::kConvolution, a / (1 + std::exp(-a))));
      }
    return y;
  }
  Doubles step(const double* qkv, const double* ba, int64_t head, Doubles& state) const {
    const auto normed = [&](const double* x) {
      double squares = 0;
      for (int i = 0; i < 16; ++i) squares += x[i] * x[i];
      Doubles y;
      for (int i = 0; i < 16; ++i) y.push_back(at(DeltaPoint::kNormedKeys, x[i] / std::sqrt(squares + 1e-6)));
      return y;
    };
    const Doubles q = normed(qkv + head / 2 * 16), k = normed(qkv + kConfig.keys() + head / 2 * 16);
    const double* v = qkv + 2 * kConfig.keys() + head * 16;
    const auto h = static_cast<size_t>(head);
    const double beta = at(DeltaPoint::kGates, 1 / (1 + std::exp(-ba[h]))),
                 g = at(DeltaPoint::kGates,
                        -std::exp(bench_.weight("a_log")[h]) *
                            std::log1p(std::exp(ba[4 + h] + bench_.weight("dt_bias")[h])));
    Doubles y(16);
    for (size_t e = 0; e < 16; ++e) {
      double known = 0;
      for (size_t i = 0; i < 16; ++i) known += std::exp(g) * state[i * 16 + e] * k[i];
      for (size_t i = 0; i < 16; ++i) {
        double& s = state[i * 16 + e];
        s = at(DeltaPoint::kState, std::exp(g) * s + k[i] * beta * (v[e] - known));
        y[e] += s * q[i] / 4;
      }
      y[e] = at(DeltaPoint::kDeltaRule, y[e]);
    }
    return y;
  }

  const Bench& bench_;
  std::optional<DeltaPoint> other_;
};

double equal_share(const Doubles& a, const Doubles& b) {
  EXPECT_EQ(a.size(), b.size());
  size_t equal = 0;
  for (size_t i = 0; i < a.size(); ++i) equal += a[i] == b[i];
  return static_cast<double>(equal) / static_cast<double>(a.size());
}

struct Mode {
  const char* name;
  Doubles (*run)(const Bench&);
};
const Mode kModes[] = {
    {"training",
     [](const Bench& bench) {
       Tape tape;
       return doubles(bench.whole(tape));
     }},
    {"prefill", [](const Bench& bench) { return bench.in_pieces({kTokens}, false); }},
    {"prefill in pieces",
     [](const Bench& bench) {
       return bench.in_pieces({1, 33, 30, 6}, false);
     }},
    {"decoding", [](const Bench& bench) { return bench.in_pieces(std::vector<int64_t>(kTokens, 1), true); }},
};

// Two of a thousand values may be close to a tie.
constexpr double kEqual = 0.998;

TEST(RoundingMap, TrainingPrefillAndDecodingRoundWhereItSays) {
  for (const char* kernels : {"eager", ""}) {
    const Bench bench(kernels);
    const Doubles expected = Reference(bench, {}).run();
    for (const Mode& mode : kModes)
      EXPECT_GE(equal_share(mode.run(bench), expected), kEqual) << mode.name << ", kernels: " << kernels;
  }
}

TEST(RoundingMap, ARowAndItsPrefillAreTheSameBits) {
  for (const char* kernels : {"eager", ""}) {
    const Bench bench(kernels);
    EXPECT_EQ(kModes[0].run(bench), kModes[1].run(bench)) << kernels;
  }
}

class EachPoint : public testing::TestWithParam<size_t> {};

TEST_P(EachPoint, RoundedOtherwiseGivesOtherBits) {
  const Bench bench("");
  const auto point = static_cast<DeltaPoint>(GetParam());
  const Doubles other = Reference(bench, point).run();
  for (const Mode& mode : kModes)
    EXPECT_LE(equal_share(mode.run(bench), other), 0.95)
        << kDeltaRoundings[GetParam()].point << ", " << mode.name;
}

INSTANTIATE_TEST_SUITE_P(RoundingMap, EachPoint, testing::Range<size_t>(0, std::size(kDeltaRoundings)));

TEST(RoundingMap, TheDocumentHasTheSameTable) {
  std::string table;
  for (const DeltaRounding& rounding : kDeltaRoundings)
    table += fmt::format("| {} | {} |\n", rounding.point, rounding.float32 ? "float32" : "`model.dtype`");
  EXPECT_NE(read_file(TEMPER_SOURCE_DIR "/docs/hybrids.md").find(table), std::string::npos)
      << "docs/hybrids.md needs this table:\n"
      << table;
}

}  // namespace
}  // namespace temper::mixers
