#include "bench/ops.h"
#include "ops/attention/attention.h"

namespace temper::bench {
namespace {

using ops::Attention;

struct Documents {
  int64_t count, queries, keys;
  int64_t window = 0;
  std::string name() const {
    return fmt::format("{}x{}{}", count, keys,
                       queries == 1 ? ".decode"
                       : window > 0 ? fmt::format(".window{}", window)
                                    : "");
  }
};

Tensor starts(int64_t documents, int64_t length) {
  std::vector<int32_t> values;
  for (int64_t i = 0; i <= documents; ++i) values.push_back(static_cast<int32_t>(i * length));
  return Tensor::from(values);
}

void add_documents(const Size& size, const Documents& documents, DType dtype) {
  const auto [count, queries, keys, window] = documents;
  const int64_t heads = size.model.heads, kv_heads = size.model.kv_heads, dim = size.model.head_dim;
  for_each_provider<Attention>({dtype, heads, kv_heads, dim, window > 0},
                               label(dtype, fmt::format("{}.{}", size.model.name, documents.name())),
                               size.eager, [&](const auto& name, const auto& ops) {
                                 (queries == 1 ? add_forward : add_passes)(name, dtype, [=]() -> Build {
                                   Attention op;
                                   op.q = filled({count * queries, heads, dim}, dtype);
                                   op.k = filled({count * keys, kv_heads, dim}, dtype);
                                   op.v = filled({count * keys, kv_heads, dim}, dtype);
                                   op.cu_seqlens_q = starts(count, queries);
                                   op.cu_seqlens_k = starts(count, keys);
                                   op.scale = 0.088f;
                                   op.window = window;
                                   return [=](Tape& tape) {
                                     return attention(tape, ops, input(tape, op.q), input(tape, op.k),
                                                      input(tape, op.v), op);
                                   };
                                 });
                               });
}

}  // namespace

void add_attention() {
  const std::vector<Documents> on_a_device[] = {{{64, 64, 64}, {176, 23, 23}},
                                                {{16, 512, 512}},
                                                {{4, 4096, 4096}, {4, 4096, 4096, 256}},
                                                {{2, 4096, 4096}}};
  const std::vector<Documents> on_a_processor[] = {
      {{32, 64, 64}, {176, 23, 23}},  // the demo's dialogues
      {{4, 512, 512}},
      {{1, 2048, 2048}, {1, 2048, 2048, 256}, {1, 1, 4096}, {8, 1, 512}},
      {{1, 1024, 1024}, {1, 1, 4096}}};
  const auto& documents = on_cpu() ? on_a_processor : on_a_device;
  for (const DType dtype : kDTypes)
    for (size_t i = 0; const Size& size : sizes())
      for (const Documents& some : documents[i++]) add_documents(size, some, dtype);
}

}  // namespace temper::bench
