#pragma once
#include <memory>
#include <vector>

#include "collectives/group.h"
#include "layers/parameters/model_ranks.h"
#include "optimizers/adamw.h"
#include "parallel/update_ranks.h"
#include "weights/layout.h"

namespace temper::parallel {

// Of a mesh's ranks the groups that this one is in, by what they have to do with each other. All ranks of
// the run make them at the same time. Where they are a multiple of the mesh's, each mesh of ranks is a stage
// of a pipeline, one behind the other.
class MeshGroups {
 public:
  MeshGroups(collectives::Group& ranks, const Mesh& mesh);

  const Mesh& mesh() const { return mesh_; }
  // Those that have the same part of the model, and other rows of an update or other tokens of the same rows.
  collectives::Group& data() const;
  // Of them those that have other rows, and the same tokens of theirs.
  collectives::Group& rows() const;
  int num_stages() const { return ranks_.size() / mesh_.size(); }
  UpdateRanks update() const;
  layers::ModelRanks model() const;  // of several stages without their parts (model_parts.h)
  optimizers::Sharing sharing() const;
  // Gives back what networks between devices hold (Group::disconnect) that passes without gradients do not
  // need, or (`all`) what any of them hold, the run's own network among them. No captured graph has
  // collectives of those. All ranks call it at the same time.
  void disconnect(bool all) const;
  // After disconnect(true), before the next pass: opens the ways between stages in one order. All ranks call
  // it at the same time.
  void connect_stages() const;
  // After an error: later work waits for collectives that still overlap with a device's work. Their memory
  // may have been freed.
  void end_overlap() const;

 private:
  std::vector<collectives::Group*> groups() const;
  int place() const { return ranks_.rank() % mesh_.size(); }               // in the mesh
  collectives::Group& stage() const { return stage_ ? *stage_ : ranks_; }  // the mesh's ranks
  void make_stages();
  // Those whose places are this one's on all axes but these; null where it is alone.
  std::unique_ptr<collectives::Group> along(const char* name, const std::vector<MeshDegree>& axes) const;

  collectives::Group& ranks_;
  Mesh mesh_;
  // Of several stages: this one's ranks, those at its place in each stage, and those of all stages that
  // data() has in one; null: there is one stage, or all ranks are in it.
  std::unique_ptr<collectives::Group> stage_, stages_, results_;
  std::unique_ptr<collectives::Group> data_, rows_, tensor_, context_, expert_, shard_, replicate_,
      expert_shard_, experts_;
  std::unique_ptr<layers::ContextGroups> context_groups_;  // of context_; null where that is
};

}  // namespace temper::parallel
