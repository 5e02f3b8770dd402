#include "bench/ops.h"
#include "ops/attention/attention.h"

namespace temper::bench {
namespace {

using ops::Attention;

struct Size {
  const char* name;
  int64_t queries, keys, documents;
  int64_t window = 0;
};
constexpr int64_t kHeads = 16, kKvHeads = 8, kDim = 128;

Tensor starts(int64_t documents, int64_t length) {
  std::vector<int32_t> values;
  for (int64_t i = 0; i <= documents; ++i) values.push_back(static_cast<int32_t>(i * length));
  return Tensor::from(values);
}

// Pairs of a query and a key that it sees, per head.
double visible_pairs(const Size& size) {
  double pairs = 0;
  for (int64_t i = 0; i < size.queries; ++i) {
    const int64_t seen = size.keys - size.queries + i + 1;
    pairs += static_cast<double>(size.window > 0 ? std::min(seen, size.window) : seen);
  }
  return pairs * static_cast<double>(size.documents);
}

void add_size(const Size& size, DType dtype) {
  const double flops = 4.0 * visible_pairs(size) * kHeads * kDim;
  const bool decode = size.queries == 1;
  const double bytes =
      decode ? 2.0 * static_cast<double>(size.documents * size.keys * kKvHeads * kDim * size_of(dtype)) : 0;
  const Attention::Signature signature{dtype, kHeads, kKvHeads, kDim, size.window > 0};
  for_each_provider<Attention>(signature, flops < 2e8, [&](const auto& provider, const auto& ops) {
    const auto inputs = [=] {
      Attention op;
      op.q = filled({size.documents * size.queries, kHeads, kDim}, dtype);
      op.k = filled({size.documents * size.keys, kKvHeads, kDim}, dtype);
      op.v = filled({size.documents * size.keys, kKvHeads, kDim}, dtype);
      op.cu_seqlens_q = starts(size.documents, size.queries);
      op.cu_seqlens_k = starts(size.documents, size.keys);
      op.scale = 0.088f;
      op.window = size.window;
      return op;
    };
    add(fmt::format("attention/{}/forward/{}/{}", provider, size.name, to_string(dtype)), [=] {
      return Work{flops, bytes, [=, op = inputs()] {
                    Tape tape(false);
                    attention(tape, ops, tape.constant(op.q), tape.constant(op.k), tape.constant(op.v), op);
                  }};
    });
    if (decode) return;
    add(fmt::format("attention/{}/both/{}/{}", provider, size.name, to_string(dtype)), [=] {
      return Work{3.5 * flops, 0,
                  [=, op = inputs(), dy = filled({size.documents * size.queries, kHeads, kDim}, dtype)] {
                    Tape tape;
                    const Var q = tape.variable(op.q), k = tape.variable(op.k), v = tape.variable(op.v);
                    tape.backward(attention(tape, ops, q, k, v, op), dy);
                  }};
    });
  });
}

}  // namespace

void add_attention() {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const Size size : {Size{"64x1", 64, 64, 1},
                            {"512x4", 512, 512, 4},
                            {"2048x1", 2048, 2048, 1},
                            {"2048x1-window256", 2048, 2048, 1, 256},
                            {"decode-4096x1", 1, 4096, 1},
                            {"decode-512x8", 1, 512, 8}})
      add_size(size, dtype);
}

}  // namespace temper::bench
