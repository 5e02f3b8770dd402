#pragma once
#include <optional>
#include <string>
#include <vector>

#include "tensor/tensor.h"
#include "weights/mesh.h"
#include "weights/weight_table.h"

namespace temper {

// Consecutive entries of a dimension.
struct Slice {
  int64_t whole = 0;  // where they begin in the whole parameter
  int64_t own = 0;    // and in what a rank holds
  int64_t count = 0;
};

// Stages of as many ranks as the mesh has, one behind the other: each parameter is on the ranks of one of
// them, and the others hold nothing of it.
struct Stages {
  int count = 1;
  std::vector<int> of = {};  // of each parameter, by table.specs(); empty where there is one stage
  // Of each parameter a second stage that has a copy of it, as the end of a model has of an embedding that is
  // its head, too; -1: none. Empty: no parameter has one.
  std::vector<int> copies = {};

  // The other stage that has the parameter where `stage` is one of two; -1: there is no other.
  int other(size_t parameter, int stage) const;
};

// Which part of one parameter a rank holds, or that it holds nothing of it. What a parameter is stacked of
// (q|k|v) is cut piece by piece, so that each rank holds its heads of all of them; experts are cut first,
// then each of them. Of a state that is sharded it is some elements in a row of that.
class Placement {
 public:
  // A segment is cut into equal pieces, each of which `repeats` neighbours hold.
  struct Segment {
    int64_t size = 0;
    int repeats = 1;
  };
  struct Cut {
    int dim = -1;                        // that tensor ranks divide; -1: none
    std::vector<Segment> segments = {};  // of that dimension
    bool by_expert = false;              // the first dimension is one of experts, as are its segments
  };

  // All of it.
  explicit Placement(const Shape& whole) : Placement(whole, {}, {}, 0) {}
  // `rank`: its place in the mesh.
  Placement(const Shape& whole, Cut cut, const Mesh& mesh, int rank);
  // The same where there are several stages, on the one whose first rank this is. `here`: whether the rank is
  // on it; otherwise it holds nothing, own() has no elements, and part() is negative. `copy`: it is on
  // another stage, which has a copy.
  Placement on_stage(int first_rank, bool here, bool copy = false) const;
  // Part `place` of `parts` of the elements of this in a row, where these are a multiple of eight.
  Placement flat(int parts, int place) const;
  bool can_be_flat(int parts) const;
  // Of one that is flat: what it is a part of.
  Placement unsharded() const;

  const Shape& whole() const { return whole_; }  // the shape of the parameter
  const Shape& own() const { return own_; }      // of what the rank holds
  Shape shape_of_part() const;                   // of what each rank holds that holds a part
  bool is_here() const { return part_ >= 0; }
  bool is_copy() const { return is_copy_; }                       // of what counts on another stage
  bool has_whole() const { return is_here() && parts() == 1; }    // this rank holds all of it
  bool is_whole() const { return !first_rank_ && parts() == 1; }  // every rank does
  bool is_flat() const { return flat_parts_ > 1; }
  bool is_by_expert() const { return cut_.by_expert; }
  bool is_cut_by_tensor() const { return cut_.dim >= 0 && mesh_.tensor > 1; }
  // Whether ranks on this axis of the mesh have different parts; otherwise they have the same one.
  bool is_cut_on(const MeshAxis& axis) const;
  int parts() const { return cut_parts() * flat_parts_; }
  int part() const { return part_; }  // the rank's own
  // The first rank that holds a part; of none no rank, -1.
  int rank_of(int part) const;

  // Of one that is not flat: rows of the first dimension, in the order of the whole, and columns of the next.
  struct Part {
    std::vector<Slice> rows;
    Slice columns;
  };
  Part held() const { return held(part_); }
  Part held(int part) const;  // by another rank

  // Of rows [first, first + count) of the whole those that the rank holds, or holds a part of.
  std::vector<Slice> own_rows(int64_t first, int64_t count) const;
  // Its columns of whole rows.
  Tensor own_columns(const Tensor& rows) const;
  // The rank's part of a whole tensor, into its own.
  void take_own(const Tensor& whole, const Tensor& own) const;

  // Elements in a row: of all dimensions as one.
  std::vector<Slice> runs(int part) const;
  int64_t first_element() const { return is_flat() ? part_ / cut_parts() * own_.numel() : 0; }
  // Of one that is flat: its elements of a tensor of what it is a part of, a view.
  Tensor own_elements(const Tensor& tensor) const;
  // Elements in a row of what this rank holds (of one that is flat: of what that is a part of) that other
  // tensor ranks hold, too: with how many neighbours, of which it may be the first.
  struct Shared {
    int64_t first = 0, count = 0;
    int ranks = 1;
    bool is_first = true;
  };
  std::vector<Shared> shared_by_tensor() const;

 private:
  int cut_parts() const {
    return (is_cut_by_tensor() ? mesh_.tensor : 1) * (cut_.by_expert ? mesh_.expert : 1);
  }
  Shape part_shape(int part) const;  // of what a rank holds before it is cut flat

  Shape whole_, own_;
  Cut cut_;
  Mesh mesh_;
  int tensor_place_ = 0;
  int flat_parts_ = 1;
  int part_ = 0;
  std::optional<int> first_rank_ = {};  // of its stage; nothing: there is one
  bool is_copy_ = false;
};

// Of the rank's own part the elements that no tensor rank before it holds, too: every element of the whole is
// one rank's of those that hold the parts first.
std::vector<Slice> owned_runs(const Placement& placement);

// What a part of a parameter holds, into its places in a whole tensor.
void put_part(const Placement& placement, const Tensor& held, int part, const Tensor& whole);

// Of every parameter of a table, which part a rank of a mesh holds. Made once for a run.
class Layout {
 public:
  // `rank` is one of the ranks of all stages. An Error that names the parameter, where an axis cannot be
  // divided between the ranks.
  explicit Layout(const WeightTable& table, const Mesh& mesh = {}, int rank = 0, Stages stages = {});
  Layout of_rank(const WeightTable& table, int rank) const { return Layout(table, mesh_, rank, stages_); }
  const Placement& operator[](size_t parameter) const { return placements_[parameter]; }  // by table.specs()
  // Whether gradients of a parameter are summed layer by layer, each rank keeping its part (shard_level 2,
  // 3).
  bool sums_by_layer(size_t parameter) const { return by_layer_[parameter]; }
  // How many ranks share the state of a parameter.
  int shards(size_t parameter) const { return shards_of(placements_[parameter], mesh_); }
  const Mesh& mesh() const { return mesh_; }  // of a stage
  const Stages& stages() const { return stages_; }
  int ranks() const { return mesh_.size() * stages_.count; }
  int rank() const { return rank_; }

 private:
  static int shards_of(const Placement& held, const Mesh& mesh);

  Mesh mesh_;
  Stages stages_;
  int rank_;
  std::vector<Placement> placements_;
  std::vector<bool> by_layer_;
};

// A tensor of which ranks hold their parts: a parameter, or what an optimizer keeps of it.
struct PlacedTensor {
  std::string name;
  Tensor own;  // [placement->own()]
  const Placement* placement = nullptr;
};

}  // namespace temper
