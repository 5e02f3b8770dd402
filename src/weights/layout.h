#pragma once
#include <string>
#include <vector>

#include "tensor/tensor.h"
#include "weights/weight_table.h"

namespace temper {

// How the ranks of a run divide its work: `replicate` · `shard` replicas of the model, each of which `tensor`
// ranks make together; of replicas that are sharded together each keeps a part of the optimizer's state.
// Those that make one replica are neighbours, and so are the replicas that share a state: rank = tensor ·
// (shard · (place among the replicated) + place among the sharded) + place in the replica.
struct Mesh {
  int replicate = 1, shard = 1, tensor = 1;
  int size() const { return replicate * shard * tensor; }
};

// Consecutive entries of the dimension that is cut.
struct Slice {
  int64_t whole = 0;  // where they begin in the whole parameter
  int64_t own = 0;    // and in what a rank holds
  int64_t count = 0;
};

// Which part of one parameter a rank holds. What a parameter is stacked of (q|k|v) is cut piece by piece, so
// that each rank holds its heads of all of them.
class Placement {
 public:
  // All of it.
  explicit Placement(const Shape& whole) : whole_(whole), own_(whole) {}
  // Part `part` of `parts` along `dim`, whose `segments` are cut each by itself. They must be divisible.
  Placement(const Shape& whole, int dim, std::vector<int64_t> segments, int parts, int part);

  // Part `part` of `parts` of all its elements in a row, which must be divisible: what a rank keeps of an
  // optimizer's state that is sharded. It has no slices.
  static Placement flat(const Shape& whole, int parts, int part);

  const Shape& whole() const { return whole_; }  // the shape of the parameter
  const Shape& own() const { return own_; }      // of what the rank holds
  bool is_whole() const { return parts_ == 1; }
  bool is_flat() const { return flat_; }
  int dim() const { return dim_; }
  int parts() const { return parts_; }
  // In the order of the whole; of this rank, or of the one that holds another part.
  std::vector<Slice> slices() const { return slices(part_); }
  std::vector<Slice> slices(int part) const;

  // Of rows [first, first + count) of the whole those that the rank holds, or holds a part of.
  std::vector<Slice> own_rows(int64_t first, int64_t count) const;
  // Its columns of whole rows; the rows themselves where rows are cut, or nothing is.
  Tensor own_columns(const Tensor& rows) const;
  // The rank's part of a whole tensor, into its own.
  void take_own(const Tensor& whole, const Tensor& own) const;
  // What a part holds, into its places in a whole tensor.
  void put_part(const Tensor& held, int part, const Tensor& whole) const;

  // Of one that is flat: a part's elements of the whole tensor, a view.
  Tensor elements(const Tensor& whole, int part) const;
  Tensor own_elements(const Tensor& whole) const { return elements(whole, part_); }

 private:
  Shape whole_, own_;
  int dim_ = 0, parts_ = 1, part_ = 0;
  bool flat_ = false;
  std::vector<int64_t> segments_ = {};
};

// Of every parameter of a table, which part a rank of a mesh holds. Made once for a run. The axes "vocab",
// "heads*head_dim" and "intermediate" lie on the mesh's tensor axis; the others, and all on its data axis,
// are on every rank.
class Layout {
 public:
  // An Error that names the parameter, where an axis cannot be divided between the ranks.
  explicit Layout(const WeightTable& table, const Mesh& mesh = {}, int rank = 0);
  const Placement& operator[](size_t parameter) const { return placements_[parameter]; }  // by table.specs()

 private:
  std::vector<Placement> placements_;
};

// A tensor of which ranks hold their parts: a parameter, or what an optimizer keeps of it.
struct PlacedTensor {
  std::string name;
  Tensor own;  // [placement->own()]
  const Placement* placement = nullptr;
};

}  // namespace temper
