#include "ops/chunk_gated_delta_rule/composition.h"

#include <algorithm>

#include "ops/slot_rows.h"
#include "primitives/primitives.h"

namespace temper::ops {
namespace {

namespace p = primitives;

Var normed(Tape& tape, const Var& x, float eps) {
  const Var square = p::sum_last(tape, p::mul(tape, x, x));
  return p::mul(tape, x, p::rsqrt(tape, p::add_scalar(tape, square, eps)));
}

// Each key head once for each of its value heads.
p::ChosenRows heads_of_values(int64_t key_heads, int64_t heads) {
  std::vector<int32_t> ids;
  for (int64_t h = 0; h < heads; ++h) ids.push_back(static_cast<int32_t>(h / (heads / key_heads)));
  return {Tensor::from(ids), key_heads, true};
}

// Parts [tokens, heads, …] of all tokens, head by head, float32.
struct Parts {
  std::vector<Var> q, k, v, g, beta;

  DeltaChunk of(Tape& tape, size_t at, const p::ChosenRows* repeated) const {
    const auto turn = [&](const Var& x) { return p::transpose(tape, x, 0, 1); };
    const auto keys = [&](const Var& x) {
      const Var turned = turn(x);
      return repeated == nullptr ? turned
                                 : p::gather_rows(tape, p::reshape(tape, turned, turned.shape()), *repeated);
    };
    return {keys(q[at]), keys(k[at]), turn(v[at]), turn(g[at]), turn(beta[at])};
  }
};

// The lengths of all chunks, and how many each document has.
struct Cut {
  std::vector<int64_t> lengths, chunks;

  Cut(const Documents& documents, int64_t chunk) {
    for (int64_t d = 0; d < documents.count(); ++d) {
      chunks.push_back(0);
      for (int64_t left = documents.length(d); left > 0; left -= chunk) {
        lengths.push_back(std::min(left, chunk));
        ++chunks.back();
      }
    }
  }
};

Parts cut(Tape& tape, const ChunkGatedDeltaRule::Inputs& in, const ChunkGatedDeltaRule& op,
          const std::vector<int64_t>& lengths) {
  const auto wide = [&](const Var& x) { return p::cast(tape, x, DType::kF32); };
  const auto keys = [&](const Var& x) { return op.norms ? normed(tape, wide(x), op.eps) : wide(x); };
  const auto parts = [&](const Var& x) { return p::split(tape, x, 0, lengths); };
  return {parts(keys(in.q)), parts(keys(in.k)), parts(wide(in.v)), parts(in.g), parts(in.beta)};
}

std::vector<Var> given_states(Tape& tape, const Var& initial, int64_t documents) {
  if (!initial.value.defined()) return {};
  return p::split(tape, initial, 0, std::vector<int64_t>(static_cast<size_t>(documents), 1));
}

}  // namespace

DeltaResult compose_delta_chunks(Tape& tape, const ChunkGatedDeltaRule::Inputs& in,
                                 const ChunkGatedDeltaRule& op, bool want_final, int64_t chunk) {
  const int64_t heads = in.v.shape()[1], key_heads = in.k.shape()[1];
  const Shape one{heads, in.k.shape()[2], in.v.shape()[2]};
  const Device device = in.v.value.device();
  const Cut pieces(op.documents, chunk);
  const Parts parts = cut(tape, in, op, pieces.lengths);
  const p::ChosenRows repeated = heads_of_values(key_heads, heads);
  const std::vector<Var> given = given_states(tape, in.initial, op.documents.count());
  std::vector<Var> states, rows;
  size_t at = 0;
  for (int64_t d = 0; d < op.documents.count(); ++d) {
    const int64_t before = op.documents.continues(d);
    Var state = before >= 0 ? states[static_cast<size_t>(before)]
                : given.empty()
                    ? tape.constant(Tensor::zeros(one, DType::kF32, MemoryTag::kActivations, device))
                    : p::reshape(tape, given[static_cast<size_t>(d)], one);
    for (int64_t i = 0; i < pieces.chunks[static_cast<size_t>(d)]; ++i, ++at) {
      const DeltaStep step = compose_delta_chunk(
          tape, parts.of(tape, at, heads == key_heads ? nullptr : &repeated), state, op.scale);
      rows.push_back(p::transpose(tape, step.y, 0, 1));
      state = step.state;
    }
    states.push_back(state);
  }
  DeltaResult out;
  if (rows.empty())
    out.y = tape.record(empty_like(in.v.value, in.v.shape()), {&in.q, &in.k, &in.v, &in.g, &in.beta},
                        [](const Tensor&) {});
  else
    out.y = p::cast(tape, p::concat_first(tape, rows), in.v.dtype());
  if (!want_final) return out;
  for (Var& state : states) state = p::reshape(tape, state, {1, one[0], one[1], one[2]});
  out.final_state = p::concat_first(tape, states);
  return out;
}

DeltaResult compose_chunk_gated_delta_rule(Tape& tape, const ChunkGatedDeltaRule::Inputs& inputs,
                                           const ChunkGatedDeltaRule& op, bool want_final) {
  return compose_delta_chunks(tape, inputs, op, want_final, kDeltaChunk);
}

Tensor compose_recurrent_gated_delta_rule(const RecurrentGatedDeltaRule& op) {
  Tape tape(false);
  const auto input = [&](const Tensor& x) { return tape.constant(x); };
  const SlotRows states(op.state, op.slots);
  ChunkGatedDeltaRule step;
  step.documents = op.documents;
  if (!op.by_documents()) {
    std::vector<int32_t> starts;
    for (int64_t s = 0; s <= op.q.dim(0); ++s) starts.push_back(static_cast<int32_t>(s));
    step.documents.starts = Tensor::from(starts);
  }
  step.scale = op.scale;
  step.norms = op.norms;
  step.eps = op.eps;
  const DeltaResult out = compose_delta_chunks(
      tape, {input(op.q), input(op.k), input(op.v), input(op.g), input(op.beta), input(states.rows())}, step,
      true, 1);
  states.rows().copy_from(out.final_state.value);
  states.store();
  return out.y.value;
}

Gates compose_delta_gates(Tape& tape, const Var& a, const Var& b, const Var& a_log, const Var& dt_bias) {
  const auto wide = [&](const Var& x) { return p::cast(tape, x, DType::kF32); };
  const Var step = p::softplus(tape, p::add(tape, wide(a), wide(dt_bias)));
  const Var rate = p::scale(tape, p::exp(tape, wide(a_log)), -1);
  return {p::mul(tape, step, rate), p::sigmoid(tape, wide(b))};
}

}  // namespace temper::ops
