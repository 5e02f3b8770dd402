#include "ops/probe.h"
#include "ops/chunk_gated_delta_rule/chunk_gated_delta_rule.h"
#include "ops/chunk_gated_delta_rule/delta_gates.h"
#include "ops/chunk_gated_delta_rule/recurrent_gated_delta_rule.h"
#include "primitives/primitives.h"

namespace temper::ops {
namespace {

constexpr int64_t kKeyHeads = 4, kValueHeads = 8;

struct Values {
  Tensor q, k, v, g, beta;
};

Values values_of(const HardwareFacts& facts, int64_t rows, DType dtype) {
  const Shape keys{rows, kKeyHeads, kProbeHeadDim}, values{rows, kValueHeads, kProbeHeadDim},
      gates{rows, kValueHeads};
  // Decays of 1/2 to 1 and strengths of 1/4 to 3/4.
  Tape tape(false);
  const Var a = tape.constant(probe_values(facts, 4, gates, DType::kF32));
  const Var half = primitives::add_scalar(tape, primitives::scale(tape, a, 0.25f), 0.5f);
  return {probe_values(facts, 1, keys, dtype), probe_values(facts, 2, keys, dtype),
          probe_values(facts, 3, values, dtype), primitives::log(tape, half).value, half.value};
}

}  // namespace

ProbeRun chunk_gated_delta_rule_probe(const std::string& provider, DType dtype, const HardwareFacts& facts) {
  const Values in = values_of(facts, kProbeTokens, dtype);
  const Tensor dy = probe_values(facts, 9, in.v.shape(), dtype);
  ChunkGatedDeltaRule op;  // two documents
  op.documents.starts =
      Tensor::from(std::vector<int32_t>{0, kProbeTokens / 3, static_cast<int32_t>(kProbeTokens)});
  op.scale = 0.125f;
  return [=, ops = bind_probe<ChunkGatedDeltaRule>(
                 provider, {dtype, kKeyHeads, kValueHeads, kProbeHeadDim, kProbeHeadDim}, facts)] {
    Tape tape;
    const Var q = tape.variable(in.q), k = tape.variable(in.k), v = tape.variable(in.v),
              g = tape.variable(in.g), beta = tape.variable(in.beta);
    const DeltaResult out = chunk_gated_delta_rule(tape, ops, {q, k, v, g, beta, {}}, op);
    return probe_backward(tape, out.y, dy, {&q, &k, &v, &g, &beta});
  };
}

ProbeRun recurrent_gated_delta_rule_probe(const std::string& provider, DType dtype,
                                          const HardwareFacts& facts) {
  constexpr int64_t kSequences = 2;
  const Values in = values_of(facts, kSequences, dtype);
  const Tensor state =
      probe_values(facts, 8, {kSequences, kValueHeads, kProbeHeadDim, kProbeHeadDim}, DType::kF32);
  return [=, ops = bind_probe<RecurrentGatedDeltaRule>(
                 provider, {dtype, kKeyHeads, kValueHeads, kProbeHeadDim, kProbeHeadDim}, facts)] {
    const Tensor held = state.clone();
    const Tensor y = recurrent_gated_delta_rule(ops, {in.q, in.k, in.v, in.g, in.beta, held, 0.125f});
    return as_float({y.on({}), held.on({})});
  };
}

ProbeRun delta_gates_probe(const std::string& provider, DType dtype, const HardwareFacts& facts) {
  const Shape shape{kProbeTokens, kProbeHeads};
  const Tensor a = probe_values(facts, 1, shape, dtype), b = probe_values(facts, 2, shape, dtype),
               a_log = probe_values(facts, 3, {kProbeHeads}, dtype),
               dt_bias = probe_values(facts, 4, {kProbeHeads}, dtype),
               dg = probe_values(facts, 9, shape, DType::kF32);
  return [=, ops = bind_probe<DeltaGates>(provider, {dtype, kProbeHeads}, facts)] {
    Tape tape;
    const Var va = tape.variable(a), vb = tape.variable(b), vl = tape.variable(a_log),
              vd = tape.variable(dt_bias);
    const Gates gates = delta_gates(tape, ops, va, vb, vl, vd);
    gates.beta.slot->add(dg);
    return probe_backward(tape, gates.g, dg, {&va, &vb, &vl, &vd});
  };
}

}  // namespace temper::ops
