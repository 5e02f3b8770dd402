#pragma once
#include "models/model.h"
#include "parallel/mesh_groups.h"

namespace temper {

// A model that several ranks have, in float32 with normal weights.
struct RankedModel {
  Json config;     // of config.json
  int chunks = 1;  // parts of the layers on each stage, where there are several
  ops::OpsConfig ops = {};
  uint64_t seed = 7;
  double deviation = 0.1;
  bool gives_values = false;
};
std::unique_ptr<models::Model> ranked_model(const parallel::MeshGroups& groups, const RankedModel& options);

}  // namespace temper
