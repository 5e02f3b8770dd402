#include "recipes/rollout_model.h"

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "recipes/mesh.h"

namespace temper::recipes {

Mesh rollout_mesh(const RolloutDegrees& degrees, const Mesh& training, const layers::DecoderConfig& model,
                  const RunConfig& config) {
  constexpr const char* kKey = "grpo.rollout_parallel";
  const int together = degrees.tensor * degrees.expert;
  if (training.size() % together != 0)
    fail(
        "[{}] tensor {} and expert {} are {} ranks, which {} cannot be divided into; set degrees whose "
        "product divides the number of ranks",
        kKey, degrees.tensor, degrees.expert, together, training.size());
  const Mesh mesh{
      .replicate = training.size() / together, .tensor = degrees.tensor, .expert = degrees.expert};
  const bool whole = training.shard * training.expert == 1 || training.shard_level < 3;
  if (whole && mesh.tensor == training.tensor && mesh.expert == training.expert)
    fail(
        "[{}] is tensor {} and expert {}, which is how training divides the model: rollouts use its weights "
        "without a copy; leave it out",
        kKey, degrees.tensor, degrees.expert);
  try {
    check_mesh(mesh, model, config);
  } catch (const Error& error) {
    fail("[{}] {}", kKey, error.what());
  }
  return mesh;
}

RolloutModel::RolloutModel(const RunSetup& setup, const RolloutDegrees& degrees,
                           const layers::Adapter* adapter, bool check)
    : own_(setup.model_on(rollout_mesh(degrees, setup.mesh, setup.architecture, setup.config))),
      trained_(adapter != nullptr ? adapter->parameters() : setup.model->decoder.parameters()),
      check_(check) {
  layers::ParameterStore& base = own_->model->decoder.parameters();
  if (adapter != nullptr) {
    // Of a frozen model once.
    parallel::WeightCopy weights(setup.model->decoder.parameters(), base, setup.ranks);
    copy(weights);
    adapter_ = std::make_unique<layers::Adapter>(adapter->plan(), adapter->config(), base);
  }
  weights_.emplace(trained_, adapter_ ? adapter_->parameters() : base, setup.ranks);
  log_info(
      fmt::format("rollouts: the model once more, as {}; of {} that are trained {} come from other ranks",
                  to_string(own_->groups.mesh()), format_bytes(weights_->bytes()),
                  format_bytes(weights_->bytes_received())));
}

void RolloutModel::copy(parallel::WeightCopy& weights) const {
  weights.run();
  if (check_) weights.check();
}

void RolloutModel::sync() {
  if (version_ == trained_.version()) return;
  copy(*weights_);
  version_ = trained_.version();
}

}  // namespace temper::recipes
