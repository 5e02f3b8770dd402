#include "recipes/loop/saved_steps.h"

#include "base/text.h"
#include "checkpoints/states/training_state.h"
#include "recipes/keys/adapter_config.h"
#include "recipes/parts/run_files.h"

namespace temper::recipes {
namespace {

std::string describe_newest(const RunFiles& files) {
  const std::vector<checkpoints::StateInfo> states = checkpoints::list_states(files.states());
  if (states.empty()) return fmt::format("Nothing of this run is saved in {}", files.folder);
  return fmt::format("Step {} is saved in {}: run the same command to resume from it", states.back().step,
                     files.folder);
}

}  // namespace

std::string describe_saved_steps(const RunConfig& config) {
  if (config.adapters.empty()) return describe_newest({config.output});
  std::vector<std::string> lines;
  for (const AdapterConfig& adapter : config.adapters)
    lines.push_back(describe_newest({run_of_adapter(config, adapter).output}));
  return join(lines, "\n");
}

}  // namespace temper::recipes
