#include "recipes/export_run.h"

#include "base/error.h"
#include "base/files.h"
#include "checkpoints/training_state.h"
#include "checkpoints/weights_sample.h"
#include "config/load.h"
#include "recipes/quantizer_state.h"
#include "recipes/run_files.h"

namespace temper::recipes {
namespace {

RunConfig config_of(const RunFiles& files) {
  if (!exists(files.config())) fail("[{}] has no config.yaml; expected the folder of a run", files.folder);
  RunConfig config;
  config::Schema schema = config::schema_of(config);
  config::load(schema, files.config());
  if (!config.quantize.to_options().any())
    fail("[{}] was trained without quantize: its model is a plain folder already, {}", files.folder,
         files.model());
  if (config.adapters.empty() && !is_directory(files.model()))
    fail("[{}] has no model yet: let the run finish first", files.folder);
  return config;
}

}  // namespace

Exported export_run(const std::string& run, const std::string& folder, models::ExportForm form) {
  const RunFiles files{run};
  const RunConfig config = config_of(files);
  // Adapters leave their base as it is.
  const std::string from = config.adapters.empty() ? files.model() : config.model.path,
                    states = config.adapters.empty() ? files.states() : files.calibration();
  const auto state = checkpoints::open_newest(states);
  if (!state)
    fail("[{}] has no checkpoint, which the amax would be in; restore it, or train the run again", states);
  if (!config.adapters.empty()) check_calibrated_base(*state, checkpoints::sample_of_weights(from), from);
  models::BuildOptions build;
  build.dtype = config.model.dtype;
  build.quantize = config.quantize.to_options();
  const auto model = models::load_model(from, build);
  read_quantizers(*state, model->decoder.quantizers());
  models::export_model(*model, folder, from, form);
  int64_t count = 0;
  for (const layers::PlannedQuantizer& each : model->decoder.quantizers().plan().quantizers)
    count += each.count;
  return {count, state->step()};
}

}  // namespace temper::recipes
