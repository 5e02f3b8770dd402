#include "recipes/setup/rollout_model.h"

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"

namespace temper::recipes {

RolloutModel::RolloutModel(const RunSetup& setup, const Mesh& mesh, const layers::Adapter* adapter,
                           bool check, std::string_view purpose)
    : own_(setup.others->divided(setup.ranks, mesh)),
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
  log_info(fmt::format("{}: the model once more, as {}; of {} that are trained {} come from other ranks",
                       purpose, to_string(own_->groups.mesh()), format_bytes(weights_->bytes()),
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
