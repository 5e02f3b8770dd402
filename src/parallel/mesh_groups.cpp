#include "parallel/mesh_groups.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "collectives/local/local.h"

namespace temper::parallel {
namespace {

using Axes = std::vector<MeshDegree>;

template <class Wanted>
Axes axes_that(const Wanted& wanted) {
  Axes axes;
  for (const MeshAxis& axis : kMeshAxes)
    if (wanted(axis)) axes.push_back(axis.degree);
  return axes;
}

}  // namespace

MeshGroups::MeshGroups(collectives::Group& ranks, const Mesh& mesh) : ranks_(ranks), mesh_(mesh) {
  invariant(ranks.size() % mesh.size() == 0, "every stage has the mesh's ranks");
  if (num_stages() > 1) make_stages();
  if (mesh.tensor > 1)
    data_ = along("data", axes_that([](const MeshAxis& axis) { return axis.degree != &Mesh::tensor; }));
  if (mesh.context > 1)
    rows_ = along("rows", axes_that([](const MeshAxis& axis) {
                    return axis.degree != &Mesh::tensor && axis.degree != &Mesh::context;
                  }));
  tensor_ = along("tensor", {&Mesh::tensor});
  context_ = along("context", {&Mesh::context});
  if (context_) context_groups_ = std::make_unique<layers::ContextGroups>(*context_);
  expert_ = along("expert", {&Mesh::expert});
  if (expert_) expert_->use_own_stream();  // token dispatch overlaps with the shared experts
  shard_ = along("shard", {&Mesh::shard, &Mesh::expert, &Mesh::context});
  if (shard_) replicate_ = along("replicate", {&Mesh::replicate});
  if (mesh.expert == 1) return;
  expert_shard_ = along("shard of experts", {&Mesh::shard, &Mesh::context});
  experts_ = along("the same experts", {&Mesh::shard, &Mesh::context, &Mesh::replicate});
}

// Stages that follow each other in a ring pass tensors on, and the first and the last one sums of what both
// have.
void MeshGroups::make_stages() {
  const int size = mesh_.size(), stages = num_stages(), own = ranks_.rank() / size;
  std::vector<int> here, same, results;
  for (int i = 0; i < size; ++i) here.push_back(own * size + i);
  for (int s = 0; s < stages; ++s) same.push_back(s * size + place());
  for (int rank = 0; rank < ranks_.size(); ++rank)
    if (mesh_.place(&Mesh::tensor, rank % size) == mesh_.place(&Mesh::tensor, place()))
      results.push_back(rank);
  stage_ = ranks_.part("stage", here);
  stages_ = ranks_.part("stages", same);
  if (mesh_.tensor > 1) results_ = ranks_.part("results", results);
  connect_stages();
}

void MeshGroups::connect_stages() const {
  if (!stages_) return;
  const int stages = num_stages(), own = stages_->rank();
  const std::set<int> partners{(own + 1) % stages, (own + stages - 1) % stages};
  stages_->pairs().connect(std::vector<int>(partners.begin(), partners.end()));
}

collectives::Group& MeshGroups::data() const {
  if (data_) return *data_;
  return mesh_.tensor == 1 ? stage() : collectives::alone();
}

UpdateRanks MeshGroups::update() const {
  const bool first_tokens = mesh_.place(&Mesh::context, place()) == 0;
  const int stage = ranks_.rank() / mesh_.size();
  collectives::Group& results = num_stages() == 1 ? data() : results_ ? *results_ : ranks_;
  return {rows(), data(), results, first_tokens && stage == 0, first_tokens && stage + 1 == num_stages()};
}

layers::ModelRanks MeshGroups::model() const {
  return {mesh_,
          place(),
          tensor_.get(),
          context_.get(),
          expert_.get(),
          shard_.get(),
          expert_shard_.get(),
          {stages_.get(), {}},
          context_groups_.get()};
}

collectives::Group& MeshGroups::rows() const {
  if (rows_) return *rows_;
  return mesh_.context == 1 ? data() : collectives::alone();
}

std::unique_ptr<collectives::Group> MeshGroups::along(const char* name, const Axes& axes) const {
  const auto is_apart = [&](int rank, const MeshAxis& axis) {
    return std::find(axes.begin(), axes.end(), axis.degree) == axes.end() &&
           mesh_.place(axis.degree, rank) != mesh_.place(axis.degree, place());
  };
  std::vector<int> members;
  for (int rank = 0; rank < mesh_.size(); ++rank)
    if (std::none_of(kMeshAxes.begin(), kMeshAxes.end(),
                     [&](const MeshAxis& axis) { return is_apart(rank, axis); }))
      members.push_back(rank);
  return members.size() == 1 ? nullptr : stage().part(name, members);
}

std::vector<collectives::Group*> MeshGroups::groups() const {
  std::vector<collectives::Group*> all{&ranks_};
  for (const auto* const part : {&stage_, &stages_, &results_, &data_, &rows_, &tensor_, &context_, &expert_,
                                 &shard_, &replicate_, &expert_shard_, &experts_})
    if (*part != nullptr) all.push_back(part->get());
  if (context_groups_)
    for (collectives::Group* const part : context_groups_->made()) all.push_back(part);
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
          .expert = expert_.get(),
          .stages = stages_.get()};
}

}  // namespace temper::parallel
