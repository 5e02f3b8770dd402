// What the layers of gated delta hybrids run apart from matrix multiplications, in the shape of
// Qwen3-Next-80B-A3B.
#include "bench/ops.h"
#include "ops/causal_conv1d/causal_conv1d.h"
#include "ops/chunk_gated_delta_rule/chunk_gated_delta_rule.h"
#include "ops/chunk_gated_delta_rule/delta_gates.h"
#include "ops/chunk_gated_delta_rule/recurrent_gated_delta_rule.h"
#include "ops/rms_norm_gated/rms_norm_gated.h"

namespace temper::bench {
namespace {

// [tokens, heads] float32, from `low` to `high`.
Tensor gates(int64_t tokens, int64_t heads, float low, float high) {
  std::vector<float> values(static_cast<size_t>(tokens * heads));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = low + (high - low) * static_cast<float>(i * 2654435761u % 1024) / 1024;
  return Tensor::from(values).reshape({tokens, heads}).on(machine().device);
}

constexpr int64_t kKeyHeads = 16, kHeads = 32, kDim = 128, kChannels = (2 * kKeyHeads + kHeads) * kDim;
int64_t row_length() { return on_cpu() ? 1024 : 8192; }

}  // namespace

void add_delta_rows() {
  using ops::CausalConv1d;
  using ops::DeltaGates;
  using ops::RmsNormGated;
  const int64_t tokens = row_length();
  for (const DType dtype : kDTypes) {
    const std::string size = label(dtype, fmt::format("{}", tokens));
    for_each_provider<CausalConv1d>(
        {dtype, kChannels, 4}, size, on_cpu(), [&](const auto& name, const auto& ops) {
          add_passes(name, dtype, [=]() -> Build {
            CausalConv1d op;
            op.documents.starts = Tensor::from(std::vector<int32_t>{0, static_cast<int32_t>(tokens)});
            const Tensor x = filled({tokens, kChannels}, dtype), weight = filled({kChannels, 4}, dtype),
                         gradient = gradient_of(weight);
            return [=](Tape& tape) {
              return causal_conv1d(tape, ops, input(tape, x), parameter(tape, weight, gradient), {}, op).y;
            };
          });
        });
    for_each_provider<RmsNormGated>({dtype, kDim}, size, on_cpu(), [&](const auto& name, const auto& ops) {
      add_passes(name, dtype, [=]() -> Build {
        const Tensor x = filled({tokens, kHeads, kDim}, dtype), gate = filled({tokens, kHeads, kDim}, dtype),
                     weight = filled({kDim}, dtype), gradient = gradient_of(weight);
        return [=](Tape& tape) {
          return rms_norm_gated(tape, ops, input(tape, x), input(tape, gate),
                                parameter(tape, weight, gradient), 1e-6f);
        };
      });
    });
    for_each_provider<DeltaGates>({dtype, kHeads}, size, on_cpu(), [&](const auto& name, const auto& ops) {
      add_forward(name, dtype, [=]() -> Build {
        const Tensor a = filled({tokens, kHeads}, dtype), b = filled({tokens, kHeads}, dtype),
                     a_log = filled({kHeads}, dtype), dt_bias = filled({kHeads}, dtype);
        return [=](Tape& tape) {
          return delta_gates(tape, ops, input(tape, a), input(tape, b), input(tape, a_log),
                             input(tape, dt_bias))
              .g;
        };
      });
    });
  }
}

// States pass by once, in and out.
void add_recurrent_gated_delta_rule() {
  using ops::RecurrentGatedDeltaRule;
  for (const DType dtype : kDTypes)
    for (const int64_t sequences : {1, 16})
      for_each_provider<RecurrentGatedDeltaRule>(
          {dtype, kKeyHeads, kHeads, kDim, kDim}, label(dtype, fmt::format("{}", sequences)), on_cpu(),
          [&](const auto& name, const auto& ops) {
            add(name + "/token", dtype, [=] {
              RecurrentGatedDeltaRule op;
              op.q = op.k = filled({sequences, kKeyHeads, kDim}, dtype);
              op.v = filled({sequences, kHeads, kDim}, dtype);
              op.g = gates(sequences, kHeads, -0.5f, 0.f);
              op.beta = gates(sequences, kHeads, 0.f, 1.f);
              op.state = zeros({sequences, kHeads, kDim, kDim}, DType::kF32);
              op.scale = 0.088f;
              return Timed{
                  [=] { recurrent_gated_delta_rule(ops, op); },
                  {},
                  {6 * static_cast<double>(op.state.numel()), 2 * static_cast<double>(op.state.bytes())}};
            });
          });
}

void add_chunk_gated_delta_rule() {
  using ops::ChunkGatedDeltaRule;
  const int64_t tokens = row_length();
  for (const DType dtype : kDTypes)
    for (const int64_t documents : {1, 8})
      for_each_provider<ChunkGatedDeltaRule>(
          {dtype, kKeyHeads, kHeads, kDim, kDim},
          label(dtype, fmt::format("{}x{}", documents, tokens / documents)), on_cpu(),
          [&](const auto& name, const auto& ops) {
            const auto prepare = [=]() -> Build {
              std::vector<int32_t> starts;
              for (int64_t i = 0; i <= documents; ++i)
                starts.push_back(static_cast<int32_t>(i * tokens / documents));
              ChunkGatedDeltaRule op;
              op.documents.starts = Tensor::from(starts);
              op.scale = 0.088f;
              const Tensor q = filled({tokens, kKeyHeads, kDim}, dtype),
                           k = filled({tokens, kKeyHeads, kDim}, dtype),
                           v = filled({tokens, kHeads, kDim}, dtype), g = gates(tokens, kHeads, -0.5f, 0.f),
                           beta = gates(tokens, kHeads, 0.f, 1.f);
              return [=](Tape& tape) {
                return chunk_gated_delta_rule(tape, ops,
                                              {input(tape, q),
                                               input(tape, k),
                                               input(tape, v),
                                               input(tape, g),
                                               input(tape, beta),
                                               {}},
                                              op)
                    .y;
              };
            };
            add_passes(name, dtype, prepare);
            if (!on_cpu()) add_passes_that_keep_states(name, dtype, prepare);
          });
}

}  // namespace temper::bench
