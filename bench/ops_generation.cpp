// What runs once per token; bound by memory.
#include <numeric>

#include "bench/ops.h"
#include "ops/attention/paged_attention.h"
#include "ops/sample/sample.h"

namespace temper::bench {

// The next token of each sequence, behind full pages.
void add_paged_attention() {
  using ops::PagedAttention;
  constexpr int64_t kHeld = 4080, kPageTokens = 16, kPages = kHeld / kPageTokens + 1;
  for (const DType dtype : kDTypes)
    for (const Size& size : sizes())
      for (const int64_t sequences : {1, 16}) {
        const int64_t heads = size.model.heads, kv_heads = size.model.kv_heads, dim = size.model.head_dim;
        for_each_provider<PagedAttention>(
            {dtype, heads, kv_heads, dim, false},
            label(dtype, fmt::format("{}.{}x{}", size.model.name, sequences, kHeld)), size.eager,
            [&](const auto& name, const auto& ops) {
              add(name + "/token", dtype, [=] {
                const Shape one{sequences, kv_heads, dim},
                    pages{sequences * kPages, kPageTokens, kv_heads, dim};
                std::vector<int32_t> starts(static_cast<size_t>(sequences + 1)),
                    tables(static_cast<size_t>(sequences * kPages));
                std::iota(starts.begin(), starts.end(), 0);
                std::iota(tables.begin(), tables.end(), 0);
                PagedAttention op;
                op.q = filled({sequences, heads, dim}, dtype);
                op.k = op.v = filled(one, dtype);
                op.keys = filled(pages, dtype), op.values = filled(pages, dtype);
                op.sequences = {Tensor::from(starts),
                                Tensor::from(std::vector<int32_t>(static_cast<size_t>(sequences), kHeld)),
                                Tensor::from(tables).reshape({sequences, kPages})};
                op.scale = 0.088f;
                return Timed{[=] { paged_attention(ops, op); },
                             {},
                             {4 * static_cast<double>(sequences * heads * kHeld * dim),
                              static_cast<double>(op.keys.bytes() + op.values.bytes())}};
              });
            });
      }
}

void add_sample() {
  using ops::Sample;
  struct Way {
    const char* name;
    ops::SamplingOptions options;
  };
  ops::SamplingOptions nucleus;
  nucleus.temperature = 0.6;
  nucleus.top_k = 20;
  nucleus.top_p = 0.95;
  ops::SamplingOptions likely;
  likely.temperature = 1;
  likely.min_p = 0.05;
  for (const DType dtype : kDTypes)
    for (const Size& size : sizes())
      for (const Way& way : {Way{"greedy", {}}, Way{"nucleus", nucleus}, Way{"min_p", likely}})
        for_each_provider<Sample>(
            {dtype, size.model.vocab}, label(dtype, fmt::format("{}.{}", size.model.name, way.name)),
            size.eager, [&, options = way.options](const auto& name, const auto& ops) {
              add(name + "/token", dtype, [=, vocab = size.model.vocab] {
                Sample op;
                op.logits = filled({1, vocab}, dtype);
                op.options =
                    Tensor::zeros({1, sizeof options}, DType::kU8, MemoryTag::kData, machine().device);
                op.options.copy_from_host(&options, sizeof options);
                op.seen = Tensor::zeros({1, vocab}, DType::kU8, MemoryTag::kData, machine().device);
                op.positions = Tensor::zeros({1}, DType::kI32, MemoryTag::kData, machine().device);
                op.ids = Tensor::zeros({1}, DType::kI32, MemoryTag::kData, machine().device);
                op.chosen = Tensor::zeros({1}, DType::kI32, MemoryTag::kData, machine().device);
                op.kept = Tensor::zeros({1}, DType::kF32, MemoryTag::kData, machine().device);
                return Timed{
                    [=] { choose_tokens(ops, op); }, {}, {0, static_cast<double>(op.logits.bytes())}};
              });
            });
}

}  // namespace temper::bench
