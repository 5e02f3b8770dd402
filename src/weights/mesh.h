#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace temper {

// How context ranks bring the tokens of a row together where they meet: each gets all tokens of some heads
// (Ulysses), or the keys and values of all tokens, or groups of them do the first within a group and the
// second between groups. As many as can exchange heads do, unless a run asks for something else.
enum class ContextMethod { kAuto, kHeads, kKeys, kBoth };

std::string_view name_of(ContextMethod method);  // "auto", "ulysses", "ring", "usp"

struct Mesh;
using MeshDegree = int Mesh::*;  // a name, as nvcc writes the type itself so that its host compiler warns

// How the ranks of a run divide its work: `replicate` · `shard` · `expert` parts of an update's rows, each of
// which `context` · `tensor` ranks compute together: each context rank some of the tokens, each tensor rank a
// part of every layer. Of the ranks that are sharded together each keeps a part of the optimizer's state, and
// of those on the expert axis each has some of the experts. What is the same of every axis is said once, in
// kMeshAxes.
struct Mesh {
  int replicate = 1, shard = 1, context = 1, tensor = 1, expert = 1;
  // Between mixers and channels each tensor rank has some of the tokens (Korthikanti et al., "Reducing
  // Activation Recomputation in Large Transformer Models", 2022); otherwise all of them have all.
  bool sequence = true;
  ContextMethod context_method = ContextMethod::kAuto;
  int context_heads =
      0;  // of the context ranks how many exchange heads; 0: what the method and the model say
  // What sharded ranks have parts of: 1, masters and moments; 2, sums of gradients, too; 3, the layers'
  // matrices, too, which are whole only while a layer computes.
  int shard_level = 1;

  int size() const;                                             // the product of the degrees
  int row_ranks() const { return replicate * shard * expert; }  // parts of an update's rows
  int place(MeshDegree degree, int rank) const;                 // of a rank on the axis of this degree
  // The first of the ranks that hold part `place` of what is divided by expert, then between the ranks that
  // share the states of an expert.
  int first_rank_of_expert(int place) const;
};

// An axis of the mesh.
struct MeshAxis {
  const char* name;   // in records, and the key of its degree in the configuration
  MeshDegree degree;  // how many ranks are on it
  // From neighbours outwards: ranks that follow one another differ first in their places on the axis of
  // order 0, then on that of order 1, and so on: of the axes here rank = tensor place + tensor · (context
  // place + context · (expert place + expert · (shard place + shard · replicate place))).
  int order;
  // Its ranks have rows of their own and compute with whole layers. Texts always name its degree; those of
  // other axes where there are several ranks.
  bool has_own_rows;
};

// All of them, as texts, records and the configuration list them. The first has what the others leave of the
// ranks.
inline constexpr std::array kMeshAxes{
    MeshAxis{"replicate", &Mesh::replicate, 4, true}, MeshAxis{"shard", &Mesh::shard, 3, true},
    MeshAxis{"context", &Mesh::context, 1, false}, MeshAxis{"tensor", &Mesh::tensor, 0, false},
    MeshAxis{"expert", &Mesh::expert, 2, false}};

size_t index_of_axis(std::string_view name);  // in kMeshAxes; another name is a defect

// Numbers of ranks that divide this number of units: "1, 2 or 4".
std::string divisors_text(int64_t units);

std::string to_string(const Mesh& mesh);  // "replicate 1, shard 2, tensor 2"

}  // namespace temper
