#pragma once
#include "autograd/tape.h"
#include "collectives/group.h"
#include "weights/layout.h"

namespace temper::layers {

// The ranks that compute one replica of a model together, each of which holds a part of its parameters. A
// mixer or channel reads all tokens of a pass and gives a part of the sum that the residual stream gets:
// enter() and leave() stand around it. What other ranks' parts need of a gradient is summed on the way back.
struct ModelRanks {
  Mesh mesh = {};
  int rank = 0;                                // of the mesh
  collectives::Group* tensor = nullptr;        // null where there is one
  collectives::Group* context = nullptr;       // that have other tokens of the same rows; null: one has all
  collectives::Group* expert = nullptr;        // the same
  collectives::Group* shard = nullptr;         // that shard weights and states; null if nothing is sharded
  collectives::Group* expert_shard = nullptr;  // the same of experts

  int tensor_ranks() const { return tensor == nullptr ? 1 : tensor->size(); }
  int tensor_place() const { return tensor == nullptr ? 0 : tensor->rank(); }
  int context_ranks() const { return context == nullptr ? 1 : context->size(); }
  int context_place() const { return context == nullptr ? 0 : context->rank(); }
  // The ranks that compute each layer at the same time, so that all of them need the same number of passes
  // (context ranks have it, as they have the same rows); null: this rank is independent.
  collectives::Group* lockstep_group() const {
    return mesh.shard_level > 1 && shard != nullptr ? shard : expert;
  }
  // The same of passes without a backward pass, in which gradients are no reason to meet.
  collectives::Group* forward_lockstep_group() const {
    return mesh.shard_level == 3 && shard != nullptr ? shard : expert;
  }
  // Whether passes over sequences with states (decoding) need other ranks: all of them compute the same ones
  // then. Context ranks each have the states of whole sequences, and decode alone.
  bool decode_together() const { return tensor != nullptr || lockstep_group() != nullptr; }
  // What is added once to a sum is added here.
  bool is_first() const { return tensor_place() == 0; }
  bool divides_tokens(bool sequence) const { return sequence && tensor != nullptr && mesh.sequence; }
  // How many of `tokens` tokens of the stream this rank has; the last rank's are padded with zeros.
  int64_t own_tokens(int64_t tokens, bool sequence) const {
    return divides_tokens(sequence) ? (tokens + tensor->size() - 1) / tensor->size() : tokens;
  }

  // The stream's tokens that are here, to all `tokens` of the pass; `sequence`: the pass divides them.
  Var enter(Tape& tape, const Var& x, int64_t tokens, bool sequence) const;
  // The ranks' parts [tokens, width] of a sum, to the stream's tokens that are here.
  Var leave(Tape& tape, const Var& y, bool sequence) const;
};

}  // namespace temper::layers
