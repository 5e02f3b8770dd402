#pragma once
#include <optional>
#include <vector>

#include "base/json/json.h"
#include "data/rows/pack.h"
#include "device/memory.h"
#include "ops/selection.h"
#include "parallel/pipeline/layer_parts.h"
#include "recipes/costs/update_listener.h"
#include "recipes/keys/run_config.h"
#include "recipes/parts/rollout_memory.h"
#include "weights/layout.h"

namespace temper::recipes {

// What a learner's data are like.
struct Sample {
  // Some of its rows: how long documents are, and how many of their tokens are targets. None: documents are
  // as long as a row, all of them targets.
  std::vector<data::PackedRow> rows;
  int64_t update_rows = 0;      // of an update, where the recipe makes them; 0: as the configuration says
  int64_t eval_documents = -1;  // of its evaluation; below 0: not known, more than one pass takes
};

// Rows of an update, of all ranks together.
int64_t rows_of_update(const RunConfig& config, const Sample& sample);

// What a plan depends on besides the configuration.
struct Setting {
  Json model;  // its config.json
  HardwareFacts facts;
  ops::Preferences preferred = {};   // kernels to try first where the configuration says nothing
  std::vector<Sample> samples = {};  // of each learner: the model, or each adapter
  Mesh mesh = {};                    // of the ranks of a stage; the plan is one rank's
  // Of a pipeline the stage whose first rank is rehearsed; absent: all of them, one after the other.
  std::optional<int> stage = {};
  int ranks_here = 1;  // of this machine, which share the CPU's memory
  // Hears the last update of each learner; null: nothing does.
  UpdateListener* listener = nullptr;
  // Passes of an update that are rehearsed at most, but of a pipeline twice as many as stages. With two the
  // gradients of one are held together with the activations of the next, as with any larger number; a few
  // more distinguish an update from small ones, which are captured in graphs.
  int64_t most_passes = 16;

  Sample sample_of(size_t learner) const { return learner < samples.size() ? samples[learner] : Sample(); }
};

// A stage of a pipeline, and what each of its ranks has in use at most.
struct StageMemory : MemoryPlan {
  std::vector<parallel::LayerRange> layers = {};
  MemoryPlan updates = {};  // as of RunMemory
  std::optional<RolloutMemory> rollouts = {};
};

// What a run has in use at most, on its device. Of several stages (parallel.pipeline), that of the stage that
// needs most.
struct RunMemory : MemoryPlan {
  int64_t host_copies = 0;  // and of the CPU's memory, where the device is apart from it
  // Of runs that learn from their own answers: updates, and rollouts. The run's plan is the most of both,
  // with the smallest cache that rollouts can do with.
  MemoryPlan updates = {};
  std::optional<RolloutMemory> rollouts = {};
  std::vector<StageMemory> stages = {};  // where there are several

  void set_cache(int64_t tokens);  // the plan, and those of all stages, with so large a cache
};

// Goes through a run's first updates and an evaluation on a device that only counts, with the model,
// adapters, kernels, objective and trainer that the run will have and rows as full as they can be: what is in
// use there at most is what the run will have in use. Of a pipeline it does so for each stage. No weights are
// read, nothing is computed. An Error where the run could not be built.
RunMemory rehearse(const RunConfig& config, const Setting& setting);

}  // namespace temper::recipes
