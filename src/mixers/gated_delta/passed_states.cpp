#include "mixers/gated_delta/passed_states.h"

#include <algorithm>
#include <optional>

#include "primitives/primitives.h"

namespace temper::mixers {
namespace {

namespace p = primitives;
using layers::ContextPass;
using layers::ContextSpan;
using layers::ContextSpans;
using ops::ChunkGatedDeltaRule;

Tensor zeros(const Shape& shape, Device device) {
  return Tensor::zeros(shape, DType::kF32, MemoryTag::kActivations, device);
}

// One document of an op's tokens.
ChunkGatedDeltaRule document_of(const ChunkGatedDeltaRule& all, int64_t first, int64_t tokens) {
  ChunkGatedDeltaRule one = all;
  for (Tensor* const tensor : {&one.q, &one.k, &one.v, &one.g, &one.beta})
    *tensor = tensor->narrow(0, first, tokens);
  one.documents = {Tensor::from(std::vector<int32_t>{0, static_cast<int32_t>(tokens)})};
  return one;
}

class StateChain {
 public:
  StateChain(const ContextPass& context, ops::Bound<ChunkGatedDeltaRule> bound)
      : context_(context), bound_(bound) {}

  // [own spans, heads, key_dim, value_dim] float32: the states that enter them, or zeros. `all`: with the
  // rank's tokens.
  Tensor entering(const ChunkGatedDeltaRule& all) {
    const int64_t keys = all.key_dim();
    const Device device = all.q.device();
    Tensor ends = zeros({spans().most, all.heads(), keys, all.value_dim()}, device);
    if (spans().any_through()) maps_ = zeros({spans().most, all.heads(), keys, keys}, device);
    for (const size_t s : spans().own) {
      const ContextSpan& span = spans().all[s];
      if (!span.leaves) continue;
      const ChunkGatedDeltaRule last =
          document_of(all, span.first + span.count - span.last_tokens, span.last_tokens);
      ends.narrow(0, span.place, 1).copy_from(ops::delta_final_states(bound_, last));
      if (span.through()) maps_.narrow(0, span.place, 1).copy_from(map_of(last));
    }
    ends = context_.all.of_all_ranks("states behind the tokens of context ranks", ends);
    if (maps_.defined())
      maps_ = context_.all.of_all_ranks("what the tokens of context ranks make of states", maps_);
    const Tensor found = empty_own(ends);
    Tensor state;
    for (size_t s = 0; s < spans().all.size(); ++s) {
      const ContextSpan& span = spans().all[s];
      if (span.rank == context_.all.place()) put(state, span.enters, found, own_place(s));
      state = span.leaves ? moved(ends, s, span.through() ? state : Tensor(), false) : Tensor();
    }
    return found;
  }

  // Of that shape: the gradients of the states that leave the own spans, where y's is dy.
  Tensor leaving_gradients(const ChunkGatedDeltaRule& all, const Tensor& dy) const {
    Tensor starts = zeros({spans().most, all.heads(), all.key_dim(), all.value_dim()}, all.q.device());
    for (const size_t s : spans().own) {
      const ContextSpan& span = spans().all[s];
      if (!span.enters) continue;
      starts.narrow(0, span.place, 1)
          .copy_from(ops::delta_initial_gradients(bound_, document_of(all, span.first, span.first_tokens),
                                                  dy.narrow(0, span.first, span.first_tokens)));
    }
    starts = context_.all.of_all_ranks("gradients of states before the tokens of context ranks", starts);
    const Tensor found = empty_own(starts);
    Tensor dstate;
    for (size_t s = spans().all.size(); s-- > 0;) {
      const ContextSpan& span = spans().all[s];
      if (span.rank == context_.all.place()) put(dstate, span.leaves, found, own_place(s));
      dstate = span.enters ? moved(starts, s, span.through() ? dstate : Tensor(), true) : Tensor();
    }
    return found;
  }

 private:
  const ContextSpans& spans() const { return *context_.spans; }
  int64_t own_place(size_t span) const {
    return std::find(spans().own.begin(), spans().own.end(), span) - spans().own.begin();
  }
  Tensor empty_own(const Tensor& like) const {
    return zeros({std::ssize(spans().own), like.dim(1), like.dim(2), like.dim(3)}, like.device());
  }
  static void put(const Tensor& state, bool there, const Tensor& all, int64_t place) {
    if (there) all.narrow(0, place, 1).copy_from(state.reshape({1, all.dim(1), all.dim(2), all.dim(3)}));
  }

  // M [heads, key_dim, key_dim] of a document: its columns are what becomes of unit vectors, as many at a
  // time as a state has columns.
  Tensor map_of(ChunkGatedDeltaRule document) const {
    const int64_t heads = document.heads(), keys = document.key_dim(), values = document.value_dim();
    const Device device = document.q.device();
    document.v = Tensor::zeros(document.v.shape(), document.v.dtype(), MemoryTag::kActivations, device);
    const Tensor map = zeros({1, heads, keys, keys}, device);
    for (int64_t first = 0; first < keys; first += values) {
      const int64_t columns = std::min(values, keys - first);
      const Tensor units = zeros({1, heads, keys, values}, {});
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t c = 0; c < columns; ++c) units.data<float>()[(h * keys + first + c) * values + c] = 1;
      document.initial = units.on(device);
      map.narrow(3, first, columns)
          .copy_from(ops::delta_final_states(bound_, document).narrow(3, 0, columns));
    }
    return map;
  }

  // parts[span] + M S, or with Mᵀ; without S the part alone. [heads, key_dim, value_dim]
  Tensor moved(const Tensor& parts, size_t span, const Tensor& state, bool turned) const {
    Tape tape(false);
    const auto of_span = [&](const Tensor& all) {
      return all.narrow(0, spans().row(span), 1).reshape({all.dim(1), all.dim(2), all.dim(3)});
    };
    if (!state.defined()) return of_span(parts);
    const Tensor map = of_span(maps_);
    const Var product =
        p::matmul(tape, tape.constant(turned ? map.transpose(1, 2).contiguous() : map), tape.constant(state));
    return p::add(tape, tape.constant(of_span(parts)), product).value;
  }

  ContextPass context_;
  ops::Bound<ChunkGatedDeltaRule> bound_;
  Tensor maps_;  // M of all ranks' spans, where documents go through; otherwise undefined
};

// Documents next to each other that the rule computes at once: one that a state enters or leaves, or some
// that none does.
struct Group {
  int64_t tokens = 0;
  std::vector<int32_t> starts{0};
  std::optional<int64_t> enters, leaves;  // which of the own spans

  bool has_states() const { return enters || leaves; }
};

std::vector<Group> groups_of(const ContextSpans& spans) {
  const auto starts = spans.starts.values<int32_t>();
  std::vector<Group> groups;
  for (size_t own = 0; own < spans.own.size(); ++own) {
    const ContextSpan& span = spans.all[spans.own[own]];
    for (int64_t i = 0; i < span.pieces; ++i) {
      const bool enters = span.enters && i == 0, leaves = span.leaves && i + 1 == span.pieces;
      if (enters || leaves || groups.empty() || groups.back().has_states()) groups.emplace_back();
      Group& group = groups.back();
      const auto piece = static_cast<size_t>(span.first_piece + i);
      group.tokens += starts[piece + 1] - starts[piece];
      group.starts.push_back(static_cast<int32_t>(group.tokens));
      if (enters) group.enters = static_cast<int64_t>(own);
      if (leaves) group.leaves = static_cast<int64_t>(own);
    }
  }
  return groups;
}

std::vector<Var> cut(Tape& tape, const Var& x, const std::vector<Group>& groups) {
  if (groups.size() == 1) return {x};
  std::vector<int64_t> counts;
  for (const Group& group : groups) counts.push_back(group.tokens);
  return p::split(tape, x, 0, counts);
}

}  // namespace

Var pass_states(Tape& tape, const ChunkGatedDeltaRule::Inputs& in, const ChunkGatedDeltaRule& given,
                ops::Bound<ChunkGatedDeltaRule> bound, const ContextPass& context, const DeltaRule& rule) {
  const ContextSpans& spans = *context.spans;
  if (!spans.any_enters()) return rule(in, {spans.starts}, false).y;
  ChunkGatedDeltaRule op = given;
  op.q = in.q.value;
  op.k = in.k.value;
  op.v = in.v.value;
  op.g = in.g.value;
  op.beta = in.beta.value;
  const auto chain = std::make_shared<StateChain>(context, bound);
  const Tensor entering = chain->entering(op);
  const std::vector<Group> groups = groups_of(spans);
  const std::vector<Var> q = cut(tape, in.q, groups), k = cut(tape, in.k, groups),
                         v = cut(tape, in.v, groups), g = cut(tape, in.g, groups),
                         beta = cut(tape, in.beta, groups);
  std::vector<Var> results, finals;
  std::vector<int64_t> places;  // of finals, among the own spans
  for (size_t i = 0; i < groups.size(); ++i) {
    const Group& group = groups[i];
    const Var initial = group.enters ? tape.constant(entering.narrow(0, *group.enters, 1)) : Var{};
    const ops::DeltaResult out = rule({q[i], k[i], v[i], g[i], beta[i], initial},
                                      {Tensor::from(group.starts)}, group.leaves.has_value());
    results.push_back(out.y);
    if (!group.leaves) continue;
    finals.push_back(out.final_state);
    places.push_back(*group.leaves);
  }
  const Var y = results.size() == 1 ? results.front() : p::concat_first(tape, results);
  std::vector<const Var*> inputs{&y};
  std::vector<std::shared_ptr<GradSlot>> slots;
  for (const Var& final : finals) {
    inputs.push_back(&final);
    slots.push_back(final.slot);
  }
  op.q = op.k = op.v = {};
  // Before the rule's own backward pass, which then has the gradients of its final states, too.
  return tape.record(y.value, inputs,
                     [chain, op, slots, places, slot = y.slot, q_saved = in.q.saved(), k_saved = in.k.saved(),
                      v_saved = in.v.saved()](const Tensor& dy) {
                       ChunkGatedDeltaRule again = op;
                       again.q = q_saved.get();
                       again.k = k_saved.get();
                       again.v = v_saved.get();
                       const Tensor leaving = chain->leaving_gradients(again, dy.contiguous());
                       for (size_t i = 0; i < slots.size(); ++i)
                         if (slots[i]) slots[i]->add(leaving.narrow(0, places[i], 1));
                       if (slot) slot->add(dy);
                     });
}

}  // namespace temper::mixers
