// What the layers of gated delta hybrids run beside products, in the shape of Qwen3-Next-80B-A3B.
#include "bench/ops.h"
#include "ops/chunk_gated_delta_rule/chunk_gated_delta_rule.h"

namespace temper::bench {
namespace {

// [tokens, heads] float32, from `low` to `high`.
Tensor gates(int64_t tokens, int64_t heads, float low, float high) {
  std::vector<float> values(static_cast<size_t>(tokens * heads));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = low + (high - low) * static_cast<float>(i * 2654435761u % 1024) / 1024;
  return Tensor::from(values).reshape({tokens, heads}).on(machine().device);
}

}  // namespace

void add_chunk_gated_delta_rule() {
  using ops::ChunkGatedDeltaRule;
  constexpr int64_t kKeyHeads = 16, kHeads = 32, kDim = 128;
  const int64_t tokens = on_cpu() ? 1024 : 8192;
  for (const DType dtype : kDTypes)
    for (const int64_t documents : {1, 8})
      for_each_provider<ChunkGatedDeltaRule>(
          {dtype, kKeyHeads, kHeads, kDim, kDim},
          label(dtype, fmt::format("{}x{}", documents, tokens / documents)), on_cpu(),
          [&](const auto& name, const auto& ops) {
            add_passes(name, dtype, [=]() -> Build {
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
            });
          });
}

}  // namespace temper::bench
