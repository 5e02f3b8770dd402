// Ops that work row by row and are bound by memory.
#include "bench/ops.h"
#include "ops/embedding/embedding.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/rotary/rotary.h"
#include "ops/swiglu/swiglu.h"

namespace temper::bench {

void add_rms_norm() {
  using ops::RmsNorm;
  for (const DType dtype : kDTypes)
    for (const Size& size : sizes()) {
      const int64_t hidden = size.model.hidden, tokens = row_tokens(size);
      for_each_provider<RmsNorm>(
          {dtype, hidden}, label(dtype, size.model.name), size.eager, [&](const auto& name, const auto& ops) {
            add_passes(name, dtype, [=]() -> Build {
              const Tensor x = filled({tokens, hidden}, dtype), weight = filled({hidden}, dtype);
              return [=, sums = gradient_of(weight)](Tape& tape) {
                return add_rms_norm(tape, ops, input(tape, x), {}, parameter(tape, weight, sums), 1e-6f).y;
              };
            });
          });
    }
}

// The usual norm of a residual stream: the sum is an output, too, and its gradient comes back.
void add_residual_norm() {
  using ops::RmsNorm;
  for (const DType dtype : kDTypes)
    for (const Size& size : sizes()) {
      const int64_t hidden = size.model.hidden, tokens = row_tokens(size);
      for_each_provider<RmsNorm>(
          {dtype, hidden}, label(dtype, fmt::format("{}.residual", size.model.name)), size.eager,
          [&](const auto& name, const auto& ops) {
            add_passes(name, dtype, [=]() -> Build {
              const Tensor x = filled({tokens, hidden}, dtype), residual = filled({tokens, hidden}, dtype),
                           weight = filled({hidden}, dtype);
              return [=, sums = gradient_of(weight)](Tape& tape) {
                const auto out = add_rms_norm(tape, ops, input(tape, x), tape.constant(residual),
                                              parameter(tape, weight, sums), 1e-6f);
                if (out.sum.requires_grad()) out.sum.slot->add(residual);
                return out.y;
              };
            });
          });
    }
}

// All three outputs have gradients.
void add_rotary() {
  using ops::Rotary;
  for (const DType dtype : kDTypes)
    for (const Size& size : sizes())
      for (const bool norm : {false, true}) {
        const int64_t heads = size.model.heads, kv_heads = size.model.kv_heads, dim = size.model.head_dim,
                      tokens = row_tokens(size);
        for_each_provider<Rotary>(
            {dtype, dim, norm}, label(dtype, fmt::format("{}{}", size.model.name, norm ? ".norm" : "")),
            size.eager, [&](const auto& name, const auto& ops) {
              add_passes(name, dtype, [=]() -> Build {
                const Tensor qkv = filled({tokens, size.qkv()}, dtype), weight = filled({dim}, dtype),
                             table = filled({tokens, dim / 2}, DType::kF32),
                             positions = numbers(tokens, tokens), dk = filled({tokens, kv_heads, dim}, dtype);
                return [=, sums = gradient_of(weight)](Tape& tape) {
                  const auto head_weight = [&] { return norm ? parameter(tape, weight, sums) : Var{}; };
                  const auto out = rotary(tape, ops, input(tape, qkv), head_weight(), head_weight(),
                                          {.heads = heads,
                                           .kv_heads = kv_heads,
                                           .positions = positions,
                                           .cos = table,
                                           .sin = table});
                  for (const Var* other : {&out.k, &out.v})
                    if (other->requires_grad()) other->slot->add(dk);
                  return out.q;
                };
              });
            });
      }
}

void add_swiglu() {
  using ops::Swiglu;
  for (const DType dtype : kDTypes)
    for (const Size& size : sizes()) {
      const int64_t inner = size.model.inner, tokens = row_tokens(size);
      for_each_provider<Swiglu>({dtype, inner}, label(dtype, size.model.name), size.eager,
                                [&](const auto& name, const auto& ops) {
                                  add_passes(name, dtype, [=]() -> Build {
                                    return [=, x = filled({tokens, 2 * inner}, dtype)](Tape& tape) {
                                      return swiglu(tape, ops, input(tape, x));
                                    };
                                  });
                                });
    }
}

void add_embedding() {
  using ops::Embedding;
  constexpr int64_t kMostRows = 32768;  // more than caches hold, less than a large model's table
  for (const DType dtype : kDTypes)
    for (const Size& size : sizes()) {
      const int64_t hidden = size.model.hidden, rows = std::min(size.model.vocab, kMostRows),
                    tokens = row_tokens(size);
      for_each_provider<Embedding>(
          {dtype, hidden}, label(dtype, size.model.name), size.eager, [&](const auto& name, const auto& ops) {
            add_passes(name, dtype, [=]() -> Build {
              const Tensor ids = numbers(tokens, rows), table = filled({rows, hidden}, dtype);
              return [=, sums = gradient_of(table)](Tape& tape) {
                return embedding(tape, ops, ids, parameter(tape, table, sums));
              };
            });
          });
    }
}

}  // namespace temper::bench
