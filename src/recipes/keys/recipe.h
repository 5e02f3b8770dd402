#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/parts/registry.h"
#include "recipes/keys/critic_settings.h"
#include "recipes/keys/foreign_names.h"
#include "recipes/keys/recipe_keys.h"
#include "recipes/keys/run_config.h"
#include "training/objectives/objective.h"
#include "training/passes/step_result.h"

namespace temper::recipes {

class BatchSource;
struct BatchInputs;  // recipes/setup/recipe_inputs.h
struct DataSets;
struct ObjectiveInputs;  // recipes/setup/recipe_inputs.h

// Of data.train, by a dry run; not all: time was up.
struct RowsRead {
  int64_t rows = 0;
  bool all = true;
};

// How long a rollout takes where answers are as long as they may be.
struct RolloutTime {
  double seconds = 0;
  int64_t updates = 1;    // that follow each
  std::string condition;  // of these seconds: "with answers of 64 tokens (grpo.sampling.max_new_tokens)"
};

// How a recipe wants rows read.
struct RowsWanted {
  data::Goal goal = data::Goal::kLanguageModel;
  bool share_prompts = true;  // of the two answers of a pair
};

// A way of training, which a room registers by name. It answers here for all that is its own: nothing else
// names a recipe. What a room leaves out is the way of supervised fine-tuning.
struct Recipe {
  // What it learns from, for the help of the key `recipe`, behind "on": "examples".
  std::string_view learns_from;
  // Its keys, a group with its name, and that of them which chooses among its losses ("loss"), if one does.
  OwnKeys keys = {};
  std::string_view loss_key = {};
  // What other programs write for `recipe`, with our answer; and what they call its own keys.
  std::vector<std::pair<std::string_view, std::string_view>> answers = {};
  std::vector<ForeignNames> foreign_names = {};

  // Refuses values that make no sense, before anything is loaded.
  void (*check)(const RunConfig& config) = [](const RunConfig&) {};
  RowsWanted (*rows)(const RunConfig& config) = [](const RunConfig&) { return RowsWanted(); };
  // The folder of a second, frozen model in memory; nothing for none.
  std::optional<std::string> (*second_model)(const RunConfig& config) =
      [](const RunConfig&) -> std::optional<std::string> { return std::nullopt; };
  // The folder of a model, besides the trained one, whose weights decide what training means: they must not
  // change while a run is stopped. Empty for none.
  std::string (*other_model)(const RunConfig& config) = [](const RunConfig&) { return std::string(); };
  // Bytes that it keeps in the run's folder, besides checkpoints and results, for `documents` documents of
  // training and evaluation.
  int64_t (*stored_bytes)(const RunConfig& config, int64_t documents) = [](const RunConfig&,
                                                                           int64_t) -> int64_t { return 0; };

  // Where updates learn from the model's own answers: how these use its device. Null: there are none.
  // (recipes/parts/rollout_memory.h)
  struct RolloutSettings (*rollouts)(const RunConfig& config) = nullptr;

  // A second model that is trained in addition to the learner's own (recipes/parts/critic.h); null, or
  // nothing: there is none.
  std::optional<CriticSettings> (*critic)(const RunConfig& config) = [](const RunConfig&) {
    return std::optional<CriticSettings>();
  };

  using Objective = std::shared_ptr<const training::Objective>;
  using MakeObjective = Objective (*)(const ObjectiveInputs& inputs);
  MakeObjective objective = nullptr;  // null: the mean of -log p over the target tokens
  // The same to measure how long an update takes: stores nothing, and takes no time to be made. Null:
  // `objective` is like that.
  MakeObjective measured = nullptr;
  // The same for a rehearsal (recipes/plans/rehearsal.h), where there is an objective: `second` is the second
  // model in memory, or null.
  Objective (*rehearsed)(const RunConfig& config, const layers::Decoder& model,
                         const layers::Decoder* second) = nullptr;

  // Why stages of a pipeline cannot compute it, as a clause behind "recipe X"; empty: they can.
  std::string (*refuses_stages)(const RunConfig& config) = [](const RunConfig&) { return std::string(); };

  // Whether the last stage of a pipeline keeps hidden states of a second model, or of the trained one, for
  // all passes of an update.
  bool (*reads_ahead)(const RunConfig& config) = [](const RunConfig&) { return false; };

  // Kernels that it needs, or (`needed` false) that are tried first where the configuration names none.
  ops::FieldValues (*kernels)(const RunConfig& config, bool needed) = [](const RunConfig&, bool) {
    return ops::FieldValues();
  };
  // Where an update's rows come from; null: they are the rows of data.train, packed.
  std::unique_ptr<BatchSource> (*batches)(const BatchInputs& inputs) = nullptr;
  // Of such a recipe: how many updates one pass over the rows of data.train gives.
  double (*updates_per_epoch)(const RunConfig& config, const DataSets& data) = nullptr;
  // Of such a recipe: rows like those of an update, to measure and to plan by. Errors: rows that cannot be
  // read.
  data::Batch (*sample)(const RunConfig& config, const DataSets& data) = nullptr;
  // Of such a recipe, for dry runs. Reads the rows that `updates` updates need, in the first epoch, and those
  // of data.eval, until `end` (a time of base/clock.h). Errors: rows that would stop the run.
  RowsRead (*read_rows)(const RunConfig& config, const DataSets& data, int64_t updates, double end) = nullptr;
  // Has a made-up answer judged, and says what it is worth. Errors: what would stop the run. Null: nothing
  // judges.
  std::string (*try_rewards)(const RunConfig& config, const DataSets& data) = nullptr;
  // How long rollouts take, by a short one. Null: there are none.
  RolloutTime (*time_of_rollouts)(const BatchInputs& inputs) = nullptr;
  // An Error for an update after which the run must not go on.
  void (*judge)(const RunConfig& config,
                const training::StepResult& result) = [](const RunConfig&, const training::StepResult&) {};
};

const Recipe& recipe_of(const RunConfig& config);

// Refuses keys of other recipes, and what the configuration's recipe refuses.
void check_recipe(const RunConfig& config);

// Tokens of a packed row: as many as data.max_length says, or twice as many where a row holds two answers.
int64_t row_tokens(const RunConfig& config);

// The key `recipe`, which names the registered ones.
void declare_recipe(config::Schema& s, std::string& recipe);

}  // namespace temper::recipes
