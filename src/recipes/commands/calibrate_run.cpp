#include "recipes/commands/calibrate_run.h"

#include <deque>
#include <optional>

#include "base/error.h"
#include "base/files.h"
#include "checkpoints/quantized_form.h"
#include "checkpoints/states/training_state.h"
#include "collectives/at_root.h"
#include "parallel/same_on_all_ranks.h"
#include "recipes/keys/adapter_config.h"
#include "recipes/loop/train.h"
#include "recipes/parts/output.h"
#include "recipes/parts/run_files.h"
#include "recipes/plans/run_kernels.h"
#include "recipes/setup/quantizer_state.h"

namespace temper::recipes {
namespace {

void check_unused(const RunFiles& files) {
  for (const std::string& states : {files.calibration(), files.states()})
    if (!checkpoints::list_states(states).empty())
      fail("[{}] has amax that were found before; choose another output, or remove it", states);
}

// Of the whole model or of each adapter; nothing where no data are named, which weights alone do not need.
struct Sources {
  std::deque<RunConfig> runs;
  std::deque<DataSets> data;

  Sources(const RunConfig& config, const rollout::TextFiles& text) {
    if (config.adapters.empty()) {
      if (!config.data.train.empty()) runs.push_back(config);
    } else {
      for (const AdapterConfig& adapter : config.adapters) runs.push_back(run_of_adapter(config, adapter));
    }
    for (const RunConfig& run : runs) data.push_back(DataSets::load(run, text));
  }

  std::vector<data::PackedRow> rows(int64_t count) const {
    std::vector<LearnerData> all;
    for (size_t i = 0; i < runs.size(); ++i) all.push_back({runs[i], data[i]});
    return rows_to_calibrate(all, count);
  }
};

// Mistakes are reported before weights are read and a folder is made.
void check_plan(const RunSetup& setup, const Sources& sources) {
  checkpoints::check_not_quantized(setup.config.model.path);
  const quantizers::QuantizerPlan plan = quantizers::plan_quantizers(
      layers::decoder_weight_table(setup.architecture), setup.config.quantize.to_options());
  for (const quantizers::PlannedQuantizer& each : plan.quantizers)
    if (sources.runs.empty() && ((each.of_input && each.keeps_amax()) || each.scales_columns()))
      fail("[data.train] is missing: {} is calibrated with rows that pass", each.name);
}

}  // namespace

void calibrate_run(RunConfig config, const std::string& resolved_yaml, collectives::Group& ranks) {
  check_run(config);
  if (!config.quantize.to_options().any())
    fail("[quantize] has neither a preset nor rules: write quantize: {{preset: FP8_DEFAULT}}, for example");
  if (ranks.is_alone()) config.parallel = {};
  parallel::check_same_program(ranks);
  const RunFiles files{config.output};
  RunSetup setup(config, "", ranks);
  collectives::at_root(setup.ranks, "looking at the folder", [&] { check_unused(files); });
  const Sources sources(setup.config, setup.text);
  check_plan(setup, sources);
  std::optional<FolderLock> lock;
  collectives::at_root(setup.ranks, "opening the folder", [&] {
    make_directories(files.folder);
    lock.emplace(files.folder);
  });
  setup.load_weights(preferred_kernels(setup.config, setup.facts), false);
  collectives::at_root(setup.ranks, "writing the configuration",
                       [&] { write_config(files.config(), resolved_yaml); });
  keep_calibration(setup, files.calibration(),
                   [&] { return sources.rows(setup.config.quantize.calibration_rows); });
}

}  // namespace temper::recipes
