#include "recipes/commands/export_run.h"

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "checkpoints/states/training_state.h"
#include "config/load.h"
#include "recipes/keys/adapter_config.h"
#include "recipes/parts/run_files.h"
#include "recipes/setup/quantizer_state.h"

namespace temper::recipes {
namespace {

// The plain folders of a run without quantize.
std::string what_is_there(const RunFiles& files, const RunConfig& config) {
  if (config.adapters.empty()) return fmt::format("its model is a plain folder already, {}", files.model());
  std::vector<std::string> folders;
  for (const AdapterConfig& adapter : config.adapters)
    folders.push_back(RunFiles{run_of_adapter(config, adapter).output}.adapter());
  return fmt::format("its adapters are plain folders already, {} (temper merge adds them to the model)",
                     join(folders));
}

RunConfig config_of(const RunFiles& files) {
  if (!exists(files.config())) fail("[{}] has no config.yaml; expected the folder of a run", files.folder);
  RunConfig config;
  config::Schema schema = config::schema_of(config);
  config::load_saved(schema, files.config());
  if (!config.quantize.to_options().any())
    fail("[{}] was trained without quantize, so that nothing is to be exported: {}", files.folder,
         what_is_there(files, config));
  return config;
}

// Nothing has changed the weights that were calibrated: adapters leave them as they are, and `temper
// quantize` trains nothing.
bool is_calibrated_alone(const RunFiles& files, const RunConfig& config) {
  if (!config.adapters.empty()) return true;
  return checkpoints::list_states(files.states()).empty() && !is_directory(files.model()) &&
         !checkpoints::list_states(files.calibration()).empty();
}

}  // namespace

Exported export_run(const std::string& run, const std::string& folder, models::ExportForm form) {
  const RunFiles files{run};
  const RunConfig config = config_of(files);
  const bool untrained = is_calibrated_alone(files, config);
  if (!untrained && !is_directory(files.model()))
    fail("[{}] has no model yet: let the run finish first", files.folder);
  const std::string from = untrained ? config.model.path : files.model(),
                    states = untrained ? files.calibration() : files.states();
  const auto state = checkpoints::open_newest(states);
  if (!state)
    fail("[{}] has no checkpoint, which the amax would be in; restore it, or train the run again", states);
  if (untrained) check_calibrated_base(*state, from);
  models::BuildOptions build;
  build.dtype = config.model.dtype;
  build.quantize = config.quantize.to_options();
  const auto model = models::load_model(from, build);
  read_quantizers(*state, model->decoder.quantizers());
  models::export_model(*model, folder, from, form);
  int64_t count = 0;
  for (const quantizers::PlannedQuantizer& each : model->decoder.quantizers().plan().quantizers)
    count += each.count;
  return {count, state->step()};
}

}  // namespace temper::recipes
