#include "ops/attention/attention.h"
#include "backends/test_support.h"

namespace temper::backends {
namespace {

using namespace ops;

struct Documents {
  std::vector<int32_t> queries, keys;  // of each document; keys empty: as many as queries
  int64_t heads, kv_heads, dim, window;
};

Tensor starts_of(const std::vector<int32_t>& lengths) {
  std::vector<int32_t> starts{0};
  for (const int32_t length : lengths) starts.push_back(starts.back() + length);
  return Tensor::from(starts);
}

Results results(const std::string& provider, DType dtype, const Documents& c) {
  const BoundOps ops = bind<Attention>(provider, {dtype, c.heads, c.kv_heads, c.dim, c.window > 0});
  Attention op;
  op.cu_seqlens_q = starts_of(c.queries);
  op.cu_seqlens_k = starts_of(c.keys.empty() ? c.queries : c.keys);
  op.scale = 1 / std::sqrt(static_cast<float>(c.dim));
  op.window = c.window;
  const int64_t tokens = op.cu_seqlens_q.values<int32_t>().back(),
                kv_tokens = op.cu_seqlens_k.values<int32_t>().back();
  Tape tape;
  const Var q = tape.variable(random_strided({tokens, c.heads, c.dim}, dtype, 1));
  const Var k = tape.variable(random_strided({kv_tokens, c.kv_heads, c.dim}, dtype, 2));
  const Var v = tape.variable(random_tensor({kv_tokens, c.kv_heads, c.dim}, dtype, 3));
  const Var y = attention(tape, ops, q, k, v, op);
  tape.backward(y, random_tensor(y.shape(), dtype, 4));
  return {y.value, q.slot->grad(), k.slot->grad(), v.slot->grad()};
}

class OnednnAttention : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Dtypes, OnednnAttention, testing::Values(DType::kF32, DType::kBF16));

TEST_P(OnednnAttention, AgreesWithEager) {
  for (const Documents& c : {Documents{{1}, {}, 1, 1, 8, 0}, Documents{{3, 0, 1, 20}, {}, 4, 2, 16, 0},
                             Documents{{65}, {}, 6, 2, 40, 0}, Documents{{300}, {}, 2, 2, 24, 0},
                             Documents{{300, 7}, {}, 4, 1, 9, 100}, Documents{{40, 20}, {}, 2, 1, 64, 1},
                             Documents{{1, 5, 0}, {600, 5, 9}, 8, 2, 72, 0},
                             Documents{{2, 90}, {300, 500}, 3, 3, 33, 70}, Documents{{12}, {}, 2, 1, 256, 0}})
    expect_faithful("onednn", GetParam(), [&](const std::string& p) { return results(p, GetParam(), c); });
}

// Long enough for several tasks to share one document's queries.
TEST_P(OnednnAttention, LongDocument) {
  const Documents c{{2100}, {}, 2, 1, 8, 0};
  expect_faithful("onednn", GetParam(), [&](const std::string& p) { return results(p, GetParam(), c); });
}

}  // namespace
}  // namespace temper::backends
