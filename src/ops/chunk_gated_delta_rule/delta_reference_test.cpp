#include <cmath>

#include "ops/chunk_gated_delta_rule/delta_test_support.h"

namespace temper::ops {

using namespace op_testing;

int64_t DeltaSetup::tokens() const {
  int64_t sum = 0;
  for (const int32_t length : lengths) sum += length;
  return sum;
}

ChunkGatedDeltaRule DeltaSetup::op() const {
  std::vector<int32_t> starts{0};
  for (const int32_t length : lengths) starts.push_back(starts.back() + length);
  ChunkGatedDeltaRule op;
  op.documents = {ints(starts), continued.empty() ? Tensor() : ints(continued)};
  op.scale = scale;
  op.norms = norms;
  op.eps = eps;
  return op;
}

std::vector<Input> delta_inputs(const DeltaSetup& s) {
  const Shape keys{s.tokens(), s.key_heads, s.key_dim}, values{s.tokens(), s.heads, s.value_dim},
      gates{s.tokens(), s.heads}, states{s.documents(), s.heads, s.key_dim, s.value_dim};
  const double size = s.norms ? 1 : 1 / std::sqrt(static_cast<double>(s.key_dim));
  Doubles g = normal(4, gates), beta = normal(5, gates);
  for (double& value : beta) value = 1 / (1 + std::exp(-value));
  for (size_t i = 0; i < g.size(); ++i)
    g[i] = s.decays.empty() ? -std::fabs(g[i]) * 0.3 : s.decays[i / s.heads % s.decays.size()];
  std::vector<Input> inputs{{"q", keys, normal(1, keys, size)},
                            {"k", keys, normal(2, keys, size)},
                            {"v", values, normal(3, values)},
                            {"g", gates, g},
                            {"beta", gates, beta}};
  if (s.fused) {
    inputs[0].padding = {1, 1, s.key_heads};
    inputs[1].padding = {1, s.key_heads, 2};
    inputs[2].padding = {1, 2, 1};
  }
  if (s.initial) inputs.push_back({"initial", states, normal(6, states)});
  return inputs;
}

namespace {

Doubles unit(const DeltaSetup& s, const double* x) {
  Doubles y(x, x + s.key_dim);
  if (!s.norms) return y;
  double sum = s.eps;
  for (const double value : y) sum += value * value;
  for (double& value : y) value /= std::sqrt(sum);
  return y;
}

struct Step {
  Doubles q, k;
  const double* v;
  double g, beta;
};

// One token of one head: the state moves on, and y is added to `out`.
void run_step(const DeltaSetup& s, const Step& in, double* state, Doubles& out) {
  for (int64_t e = 0; e < s.value_dim; ++e) {
    double known = 0, y = 0;
    for (int64_t i = 0; i < s.key_dim; ++i) known += (state[i * s.value_dim + e] *= std::exp(in.g)) * in.k[i];
    const double u = in.beta * (in.v[e] - known);
    for (int64_t i = 0; i < s.key_dim; ++i) y += (state[i * s.value_dim + e] += in.k[i] * u) * in.q[i];
    out.push_back(s.scale * y);
  }
}

}  // namespace

Doubles delta_reference(const DeltaSetup& s, const std::vector<Doubles>& in) {
  const int64_t size = s.heads * s.key_dim * s.value_dim, group = s.heads / s.key_heads;
  Doubles y, finals(static_cast<size_t>(s.documents() * size));
  int64_t t = 0;
  for (int64_t d = 0; d < s.documents(); ++d) {
    const auto at = static_cast<size_t>(d);
    double* const states = &finals[d * size];
    const int64_t before = s.continued.empty() ? -1 : s.continued[at];
    if (before >= 0)
      std::copy_n(&finals[before * size], size, states);
    else if (s.initial)
      std::copy_n(&in[5][d * size], size, states);
    for (const int64_t end = t + s.lengths[at]; t < end; ++t)
      for (int64_t h = 0; h < s.heads; ++h) {
        const int64_t key = (t * s.key_heads + h / group) * s.key_dim, gate = t * s.heads + h;
        run_step(s,
                 {unit(s, &in[0][key]), unit(s, &in[1][key]), &in[2][gate * s.value_dim], in[3][gate],
                  in[4][gate]},
                 states + h * s.key_dim * s.value_dim, y);
      }
  }
  y.insert(y.end(), finals.begin(), finals.end());
  return y;
}

}  // namespace temper::ops
