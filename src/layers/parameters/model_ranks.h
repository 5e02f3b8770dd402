#pragma once
#include <vector>

#include "autograd/tape.h"
#include "collectives/group.h"
#include "layers/parameters/context_groups.h"
#include "weights/layout.h"

namespace temper::layers {

// The stages of a pipeline, as a rank of one of them sees them. The layers of a model are cut into parts, one
// behind the other; part p is on stage p modulo their number, so that each may have several.
struct ModelStages {
  // Those at this rank's place in each stage, by stage, which pass tensors on; null: there is one stage.
  collectives::Group* ranks = nullptr;
  std::vector<int> parts = {};  // of each layer its part, in order; empty where there is one

  int count() const { return ranks == nullptr ? 1 : ranks->size(); }
  int place() const { return ranks == nullptr ? 0 : ranks->rank(); }
  int num_parts() const { return parts.empty() ? 1 : parts.back() + 1; }
  int chunks() const { return num_parts() / count(); }  // parts of each stage
  int stage_of(int part) const { return part % count(); }
  bool has_layer(size_t layer) const { return parts.empty() || stage_of(parts[layer]) == place(); }
  bool has_first() const { return place() == 0; }           // part, which embeds
  bool has_last() const { return place() == count() - 1; }  // which ends in the loss

  struct Layers {
    size_t first = 0, last = 0;  // without `last`
  };
  Layers layers_of(int part, size_t layers) const;  // of a model with this many
};

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
  ModelStages stages = {};                     // that the mesh is one of
  ContextGroups* context_groups = nullptr;     // of the context ranks

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
