#include "recipes/loop/saved_steps.h"

#include <gtest/gtest.h>

#include "base/files.h"
#include "checkpoints/states/training_state.h"
#include "recipes/keys/adapter_config.h"
#include "recipes/parts/run_files.h"

namespace temper::recipes {
namespace {

void save_step(const std::string& folder, int64_t step) {
  checkpoints::StateWriter writer(RunFiles{folder}.states(), step);
  writer.add_json("state.json", Json::Object{{"step", step}});
  writer.commit();
}

TEST(SavedSteps, AreTheNewestOfEachFolder) {
  const TemporaryDirectory folder;
  RunConfig config;
  config.output = folder / "run";
  EXPECT_EQ(describe_saved_steps(config), "Nothing of this run is saved in " + config.output);
  save_step(config.output, 20);
  save_step(config.output, 40);
  EXPECT_EQ(describe_saved_steps(config),
            "Step 40 is saved in " + config.output + ": run the same command to resume from it");
  config.adapters = {{.name = "a"}, {.name = "b"}};
  const std::string of_b = run_of_adapter(config, config.adapters[1]).output;
  save_step(of_b, 30);
  EXPECT_EQ(describe_saved_steps(config),
            "Nothing of this run is saved in " + run_of_adapter(config, config.adapters[0]).output +
                "\nStep 30 is saved in " + of_b + ": run the same command to resume from it");
}

}  // namespace
}  // namespace temper::recipes
