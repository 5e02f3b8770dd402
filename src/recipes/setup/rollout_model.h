#pragma once
#include <memory>
#include <optional>
#include <string_view>

#include "layers/adapter.h"
#include "parallel/weight_copy.h"
#include "recipes/parts/rollout_memory.h"
#include "recipes/setup/run_setup.h"

namespace temper::recipes {

// What answers are computed with where that divides the model in another way than training: the run's model
// once more, with an adapter of its own where one is trained. All ranks make one and call sync() at the same
// time.
class RolloutModel {
 public:
  // `adapter`: that is trained; null: the model is. Both outlive this. `check`: compares after each copy.
  // `purpose`: a word for the log.
  RolloutModel(const RunSetup& setup, const Mesh& mesh, const layers::Adapter* adapter, bool check,
               std::string_view purpose = "rollouts");

  const layers::Decoder& decoder() const { return own_->model->decoder; }
  const layers::Adapter* adapter() const { return adapter_.get(); }
  const parallel::MeshGroups& groups() const { return own_->groups; }
  // What was trained since the last time comes here.
  void sync();

 private:
  void copy(parallel::WeightCopy& weights) const;

  const std::shared_ptr<DividedModel> own_;
  std::unique_ptr<layers::Adapter> adapter_;
  const layers::ParameterStore& trained_;
  std::optional<parallel::WeightCopy> weights_;  // of what is trained
  const bool check_;
  std::optional<uint64_t> version_;  // of trained_ that is here
};

}  // namespace temper::recipes
