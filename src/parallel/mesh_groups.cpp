#include "parallel/mesh_groups.h"

#include <array>

#include "collectives/local/local.h"

namespace temper::parallel {
namespace {

// A rank's places on the axes, in the order of Axis.
std::array<int, 4> places_of(const Mesh& mesh, int rank) {
  return {mesh.tensor_place(rank), mesh.expert_place(rank), rank / (mesh.tensor * mesh.expert) % mesh.shard,
          rank / (mesh.tensor * mesh.expert * mesh.shard)};
}

}  // namespace

MeshGroups::MeshGroups(collectives::Group& ranks, const Mesh& mesh) : ranks_(ranks), mesh_(mesh) {
  const unsigned all = kTensor | kExpert | kShard | kReplicate;
  if (mesh.tensor > 1) data_ = along("data", all & ~kTensor);
  tensor_ = along("tensor", kTensor);
  expert_ = along("expert", kExpert);
  if (expert_) expert_->use_own_stream();  // token dispatch overlaps with the shared experts
  shard_ = along("shard", kShard | kExpert);
  if (shard_) replicate_ = along("replicate", kReplicate);
  if (mesh.expert == 1) return;
  expert_shard_ = along("shard of experts", kShard);
  experts_ = along("the same experts", kShard | kReplicate);
}

collectives::Group& MeshGroups::data() const {
  if (data_) return *data_;
  return mesh_.tensor == 1 ? ranks_ : collectives::alone();
}

std::unique_ptr<collectives::Group> MeshGroups::along(const char* name, unsigned axes) const {
  const std::array<int, 4> own = places_of(mesh_, ranks_.rank());
  std::vector<int> members;
  for (int rank = 0; rank < mesh_.size(); ++rank) {
    const std::array<int, 4> places = places_of(mesh_, rank);
    bool with = true;
    for (size_t axis = 0; axis < places.size(); ++axis)
      with = with && ((axes >> axis & 1) != 0 || places[axis] == own[axis]);
    if (with) members.push_back(rank);
  }
  return members.size() == 1 ? nullptr : ranks_.part(name, members);
}

std::vector<collectives::Group*> MeshGroups::groups() const {
  std::vector<collectives::Group*> all{&ranks_};
  for (const auto* const part : {&data_, &tensor_, &expert_, &shard_, &replicate_, &expert_shard_, &experts_})
    if (*part != nullptr) all.push_back(part->get());
  return all;
}

void MeshGroups::disconnect(bool all) const {
  const layers::ModelRanks model = this->model();
  for (collectives::Group* const group : groups())
    if (all || (group != model.tensor && group != model.forward_lockstep_group())) group->disconnect();
}

void MeshGroups::end_overlap() const {
  for (collectives::Group* const group : groups()) try {
      group->end_overlap();
    } catch (const Error&) {
      // Of a lost GPU, which the error says that is under way.
    }
}

optimizers::Sharing MeshGroups::sharing() const {
  return {.shard = shard_.get(),
          .replicate = replicate_.get(),
          .tensor = tensor_.get(),
          .expert_shard = expert_shard_.get(),
          .experts = experts_.get(),
          .expert = expert_.get()};
}

}  // namespace temper::parallel
