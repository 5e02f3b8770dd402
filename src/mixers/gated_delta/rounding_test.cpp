// In a bfloat16 model values are rounded at the points that gated_delta.h names and nowhere else, in
// training, in prefill by pieces and in decoding alike: a reference in double precision that rounds there
// gives the same bits for nearly all results, and one that leaves a point out, or rounds at another, does
// not.
#include <cmath>

#include "base/random.h"
#include "mixers/gated_delta/delta_state.h"
#include "tests/support/op_testing.h"

namespace temper::mixers {
namespace {

using namespace op_testing;

constexpr int64_t kTokens = 40;
const GatedDeltaConfig kConfig{
    .hidden = 32, .key_heads = 2, .heads = 4, .key_dim = 16, .value_dim = 12, .width = 4, .norm_eps = 1e-6};

// Where values become bfloat16.
struct Map {
  // The declared points.
  bool projections = true, convolved = true, mixed = true, normed = true;
  // What stays as it is.
  bool silu_sums = false, unit_keys = false, beta = false, decay = false, state = false, gate = false;
};

double rounded(double value) {
  return static_cast<double>(static_cast<float>(BFloat16(static_cast<float>(value))));
}
double at(bool point, double value) { return point ? rounded(value) : value; }
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

struct Weights {
  Doubles qkvz, ba, conv, a_log, dt_bias, norm, output;
};

// rows [tokens, in] times a matrix [out, in] transposed.
Doubles product(const Doubles& rows, const Doubles& matrix, int64_t in) {
  const auto width = static_cast<size_t>(in);
  Doubles y;
  for (size_t row = 0; row < rows.size(); row += width)
    for (size_t out = 0; out < matrix.size(); out += width) {
      double sum = 0;
      for (size_t i = 0; i < width; ++i) sum += rows[row + i] * matrix[out + i];
      y.push_back(sum);
    }
  return y;
}

class Reference {
 public:
  Reference(const Weights& weights, const Map& map) : w_(weights), map_(map) {}

  Doubles operator()(const Doubles& x) {
    const Doubles qkvz = rounded_if(map_.projections, product(x, w_.qkvz, c_.hidden)),
                  ba = rounded_if(map_.projections, product(x, w_.ba, c_.hidden));
    Doubles normed;
    for (int64_t t = 0; t < kTokens; ++t) {
      const auto wide = static_cast<size_t>(t * (c_.channels() + c_.values()));
      const Doubles qkv = convolved(qkvz, t);
      for (int64_t head = 0; head < c_.heads; ++head) {
        const double b = ba[static_cast<size_t>(t * 2 * c_.heads + head)],
                     a = ba[static_cast<size_t>(t * 2 * c_.heads + c_.heads + head)];
        const Doubles y = step(qkv, head, a, b);
        double squares = 0;
        for (const double value : y) squares += value * value;
        const double rms = std::sqrt(squares / static_cast<double>(c_.value_dim) + c_.norm_eps);
        for (int64_t i = 0; i < c_.value_dim; ++i) {
          const double z = qkvz[wide + static_cast<size_t>(c_.channels() + head * c_.value_dim + i)];
          const double gate = at(map_.gate, z * sigmoid(z));
          normed.push_back(
              at(map_.normed, y[static_cast<size_t>(i)] / rms * w_.norm[static_cast<size_t>(i)] * gate));
        }
      }
    }
    return rounded_if(true, product(normed, w_.output, c_.values()));
  }

 private:
  static Doubles rounded_if(bool point, Doubles values) {
    for (double& value : values) value = at(point, value);
    return values;
  }
  Doubles convolved(const Doubles& qkvz, int64_t t) const {
    Doubles y;
    for (int64_t channel = 0; channel < c_.channels(); ++channel) {
      double sum = 0;
      for (int64_t j = 0; j < c_.width; ++j)
        if (const int64_t from = t - c_.width + 1 + j; from >= 0)
          sum += w_.conv[static_cast<size_t>(channel * c_.width + j)] *
                 qkvz[static_cast<size_t>(from * (c_.channels() + c_.values()) + channel)];
      sum = at(map_.silu_sums, sum);
      y.push_back(at(map_.convolved, sum * sigmoid(sum)));
    }
    return y;
  }
  // A key's or a query's direction.
  Doubles unit(const Doubles& qkv, int64_t first) const {
    Doubles x(qkv.begin() + first, qkv.begin() + first + c_.key_dim);
    double squares = 0;
    for (const double value : x) squares += value * value;
    for (double& value : x) value = at(map_.unit_keys, value / std::sqrt(squares + 1e-6));
    return x;
  }
  // One token of the recurrence (ops/chunk_gated_delta_rule.h).
  Doubles step(const Doubles& qkv, int64_t head, double a, double b) {
    const auto h = static_cast<size_t>(head);
    const int64_t key_head = head / (c_.heads / c_.key_heads);
    const Doubles q = unit(qkv, key_head * c_.key_dim), k = unit(qkv, c_.keys() + key_head * c_.key_dim);
    const double g = -std::exp(w_.a_log[h]) * std::log1p(std::exp(a + w_.dt_bias[h])),
                 decay = at(map_.decay, std::exp(at(map_.decay, g))), beta = at(map_.beta, sigmoid(b));
    Doubles& state = states_[h];
    state.resize(static_cast<size_t>(c_.key_dim * c_.value_dim));
    Doubles y;
    for (int64_t v = 0; v < c_.value_dim; ++v) {
      const auto place = [&](int64_t key) { return static_cast<size_t>(key * c_.value_dim + v); };
      double known = 0, result = 0;
      for (int64_t i = 0; i < c_.key_dim; ++i) known += k[static_cast<size_t>(i)] * decay * state[place(i)];
      const double value = qkv[static_cast<size_t>(2 * c_.keys() + head * c_.value_dim + v)];
      for (int64_t i = 0; i < c_.key_dim; ++i) {
        double& entry = state[place(i)];
        entry = at(map_.state, decay * entry + k[static_cast<size_t>(i)] * beta * (value - known));
        result += q[static_cast<size_t>(i)] * entry;
      }
      y.push_back(at(map_.mixed, result / std::sqrt(static_cast<double>(c_.key_dim))));
    }
    return y;
  }

  const GatedDeltaConfig& c_ = kConfig;
  const Weights& w_;
  Map map_;
  Doubles states_[8];
};

// The mixer alone, in bfloat16.
class Alone {
 public:
  explicit Alone(const ops::OpsConfig& config)
      : mixer_(gated_delta(kConfig)),
        parameters_(table(*mixer_), DType::kBF16, {}),
        ops_(bind(*mixer_, config)) {
    uint64_t seed = 5;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const Tensor& value = parameters_[i].value;
      const bool matrix = value.shape().ndim() == 2;
      value.copy_from(tensor_of(normal(++seed, value.shape(), matrix ? 0.3 : 0.5, matrix ? 0 : 0.5),
                                value.shape(), DType::kF32));
    }
    bound_ = mixer_->bind({parameters_, ops_, rope_, routers_, "layers.0."});
    x_ = tensor_of(normal(3, {kTokens, kConfig.hidden}), {kTokens, kConfig.hidden}, DType::kBF16);
  }

  Doubles input() const { return values_of(x_); }
  Weights weights() const {
    const auto of = [&](const char* name) {
      return values_of(parameters_.value(std::string("layers.0.delta.") + name));
    };
    return {of("qkvz.weight"), of("ba.weight"),   of("conv.weight"),  of("a_log"),
            of("dt_bias"),     of("norm.weight"), of("output.weight")};
  }
  // In pieces of so many tokens; of one token as decoding does it.
  Doubles run(int64_t piece, bool trains) const {
    DeltaState state(kConfig, DType::kBF16);
    Doubles all;
    for (int64_t first = 0; first < kTokens; first += piece) {
      const int64_t count = std::min(piece, kTokens - first);
      Tape tape(trains);
      layers::Pass pass;
      pass.decodes = count == 1;
      pass.cu_seqlens_q = Tensor::from(std::vector<int32_t>{0, static_cast<int32_t>(count)});
      const Var x = trains ? tape.variable(x_) : tape.constant(x_.narrow(0, first, count));
      const Doubles own = values_of(bound_->forward(tape, x, pass, trains ? nullptr : &state).value);
      all.insert(all.end(), own.begin(), own.end());
    }
    return all;
  }

 private:
  static WeightTable table(const layers::Mixer& mixer) {
    WeightTable table;
    layers::WeightScope scope(table, "layers.0.", "model.layers.0.");
    mixer.declare(scope);
    return table;
  }
  static ops::BoundOps bind(const layers::Mixer& mixer, const ops::OpsConfig& config) {
    ops::Binder binder(config, facts());
    layers::OpScope scope(binder, "layers.0.", DType::kBF16);
    mixer.name_ops(scope);
    return binder.finish();
  }

  std::shared_ptr<const layers::Mixer> mixer_;
  layers::ParameterStore parameters_;
  ops::BoundOps ops_;
  layers::RopeTableSet rope_{kTokens, {}};
  layers::RouterSet routers_;
  std::unique_ptr<layers::BoundMixer> bound_;
  Tensor x_;
};

double same_share(const Doubles& found, const Doubles& expected) {
  size_t same = 0;
  for (size_t i = 0; i < expected.size(); ++i) same += found.at(i) == expected[i];
  return static_cast<double>(same) / static_cast<double>(expected.size());
}

struct Point {
  const char* name;
  bool Map::*member;
};
constexpr Point kPoints[] = {{"projections", &Map::projections},
                             {"convolved", &Map::convolved},
                             {"mixed", &Map::mixed},
                             {"normed", &Map::normed},
                             {"silu_sums", &Map::silu_sums},
                             {"unit_keys", &Map::unit_keys},
                             {"beta", &Map::beta},
                             {"decay", &Map::decay},
                             {"state", &Map::state},
                             {"gate", &Map::gate}};

void check(const ops::OpsConfig& config) {
  const Alone mixer(config);
  const Weights weights = mixer.weights();
  const Doubles x = mixer.input(), declared = Reference(weights, {})(x);
  struct Way {
    const char* name;
    Doubles found;
  };
  for (const auto& [name, found] :
       {Way{"training", mixer.run(kTokens, true)}, Way{"prefill", mixer.run(kTokens, false)},
        Way{"prefill by 7 tokens", mixer.run(7, false)}, Way{"decoding", mixer.run(1, false)}}) {
    const double share = same_share(found, declared);
    EXPECT_GE(share, 0.97) << name;
    for (const Point& point : kPoints) {
      Map other;
      other.*point.member = !(other.*point.member);
      EXPECT_LE(same_share(found, Reference(weights, other)(x)), share - 0.1) << name << ", " << point.name;
    }
  }
}

TEST(GatedDeltaRounding, OfCompositions) { check(ops::all_eager()); }
TEST(GatedDeltaRounding, OfFastKernels) { check({}); }

}  // namespace
}  // namespace temper::mixers
