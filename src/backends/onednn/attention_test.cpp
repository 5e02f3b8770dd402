#include "backends/onednn/onednn.h"
#include "backends/test_support.h"

namespace temper::backends {
namespace {

using namespace ops;

struct Case {
  std::vector<int32_t> queries, keys;  // of each document; keys empty: as many as queries
  int64_t heads, kv_heads, dim, window;
};

Tensor starts_of(const std::vector<int32_t>& lengths) {
  std::vector<int32_t> starts{0};
  for (const int32_t length : lengths) starts.push_back(starts.back() + length);
  return Tensor::from(starts);
}

Results results(const std::string& provider, DType dtype, const Case& c) {
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
  for (const Case& c :
       {Case{{1}, {}, 1, 1, 8, 0}, Case{{3, 0, 1, 20}, {}, 4, 2, 16, 0}, Case{{65}, {}, 6, 2, 40, 0},
        Case{{300}, {}, 2, 2, 24, 0}, Case{{300, 7}, {}, 4, 1, 9, 100}, Case{{40, 20}, {}, 2, 1, 64, 1},
        Case{{1, 5, 0}, {600, 5, 9}, 8, 2, 72, 0}, Case{{2, 90}, {300, 500}, 3, 3, 33, 70},
        Case{{12}, {}, 2, 1, 256, 0}})
    expect_faithful("onednn", GetParam(), [&](const std::string& p) { return results(p, GetParam(), c); });
}

// Long enough for several tasks to share one document's queries.
TEST_P(OnednnAttention, LongDocument) {
  const Case c{{2100}, {}, 2, 1, 8, 0};
  expect_faithful("onednn", GetParam(), [&](const std::string& p) { return results(p, GetParam(), c); });
}

}  // namespace
}  // namespace temper::backends
