#include "tests/support/ranked_model.h"

#include "parallel/model_parts.h"

namespace temper {

std::unique_ptr<models::Model> ranked_model(const parallel::MeshGroups& groups, const RankedModel& options) {
  layers::DecoderConfig architecture = models::configure(options.config, "tiny");
  architecture.gives_values = options.gives_values;
  models::BuildOptions build;
  build.dtype = DType::kF32;
  build.ops = options.ops;
  build.purpose = models::Purpose::kTraining;
  build.gives_values = options.gives_values;
  build.ranks = parallel::with_parts(groups.model(), architecture, options.chunks);
  auto model = models::build_model(options.config, "tiny", build);
  model->decoder.parameters().initialize(options.seed, options.deviation);
  return model;
}

}  // namespace temper
