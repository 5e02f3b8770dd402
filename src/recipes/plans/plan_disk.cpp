#include "recipes/plans/plan_disk.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

#include "base/files.h"
#include "layers/decoder.h"
#include "models/model.h"
#include "recipes/keys/adapter_config.h"
#include "recipes/keys/recipe.h"

namespace temper::recipes {
namespace {

// Of one copy of all values, in `dtype` where their parameter has none of its own.
int64_t value_bytes(const WeightTable& table, DType dtype) {
  int64_t bytes = 0;
  for (const WeightSpec& spec : table.specs())
    bytes += spec.shape.numel() * size_of(spec.dtype.value_or(dtype));
  return bytes;
}

int64_t num_elements(const WeightTable& table) {
  int64_t count = 0;
  for (const WeightSpec& spec : table.specs()) count += spec.shape.numel();
  return count;
}

// What is trained: it is in states and results.
WeightTable trained_table(const RunConfig& config, const layers::DecoderConfig& model) {
  WeightTable base = layers::decoder_weight_table(model);
  if (config.adapters.empty()) return base;
  return lora_table(base, choose_adapter(config.adapters.front(), base).plan);
}

// What is trained of a critic; nothing where there is none.
std::optional<WeightTable> critic_table(const RunConfig& config, const layers::DecoderConfig& model) {
  const std::optional<CriticSettings> wish = recipe_of(config).critic(config);
  if (!wish) return std::nullopt;
  layers::DecoderConfig architecture = model;
  if (wish->folder != config.model.path) {
    const std::string file = join_path(wish->folder, "config.json");
    architecture = models::configure(Json::parse_file(file), file);
  }
  architecture.gives_values = true;
  WeightTable base = layers::decoder_weight_table(architecture);
  if (!wish->lora) return base;
  return lora_table(base, plan_lora(base, *wish->lora, "grpo.critic."));
}

// Lists of names in a file's header.
int64_t header_bytes(const WeightTable& table, int64_t tensors_each) {
  constexpr int64_t kPerTensor = 128;
  return static_cast<int64_t>(table.specs().size()) * tensors_each * kPerTensor;
}

// Of values and moments.
int64_t trained_bytes(const RunConfig& config, const WeightTable& table) {
  const bool master = config.model.dtype != DType::kF32 && config.train.master_weights;
  return value_bytes(table, master ? DType::kF32 : config.model.dtype) +
         num_elements(table) * 2 * size_of(config.train.optimizer.moments) + header_bytes(table, 3);
}

int64_t result_bytes(const RunConfig& config, const WeightTable& table, int64_t extra_bytes) {
  return value_bytes(table, config.model.dtype) + header_bytes(table, 1) + extra_bytes;
}

// Every how many steps something happens that always happens after the last one.
int64_t period(int64_t every, int64_t steps) { return every > 0 ? std::min(every, steps) : steps; }

// States and results on disk at once.
struct Counts {
  int64_t states = 0, results = 0;
};

constexpr size_t kFinalResult = 2;  // of these moments

// The most of each moment, of a run whose evaluations get better and better (the newest state is the best,
// and each best result takes another's place) or worse from the first on (whose state is kept besides).
std::vector<Counts> moments_of(const RunConfig& config, const LearnerSizes& sizes, bool evaluates) {
  const int64_t steps = std::max<int64_t>(sizes.steps, 1),
                keep = std::max<int64_t>(config.checkpoint.keep_last, 1);
  const bool any_time = config.checkpoint.seconds() > 0;
  const int64_t saves = any_time ? 1 : period(config.checkpoint.every_steps.value_or(0), steps),
                looks = period(config.eval.every_steps, steps);
  const int64_t saved = (steps + saves - 1) / saves, looked = evaluates ? (steps + looks - 1) / looks : 0;
  const int64_t best = std::min<int64_t>(looked, 1), kept = std::min(saved, keep);
  std::vector<Counts> moments{{std::min(saved, keep + 1), best},  // the last state is written
                              {std::min(saved - 1, keep), std::min<int64_t>(looked, 2)},  // a better best
                              {kept, best + 1}};                                          // the final result
  // Evaluations run while a checkpoint is still being written.
  if (config.checkpoint.async) moments.push_back({std::min(saved, keep + 1), std::min<int64_t>(looked, 2)});
  // The first best is kept in addition to the newest if its checkpoint is old by then.
  const int64_t first_both = std::lcm(saves, looks), after = (steps - 1) / saves - (first_both - 1) / saves;
  if (best > 0 && first_both < steps && after >= keep) {
    moments.push_back({keep + 1, best + 1});
    moments.push_back({std::min(saved, keep + 2), best});
  }
  return moments;
}

int64_t logged_bytes(int64_t steps) {
  constexpr int64_t kOnce = 64 << 10, kOfStep = 768;  // metrics.jsonl and TensorBoard's events
  return kOnce + steps * kOfStep;
}

}  // namespace

int64_t state_bytes(const RunConfig& config, const layers::DecoderConfig& model) {
  constexpr int64_t kProgress = 16 << 10;  // state.json
  const std::optional<WeightTable> critic = critic_table(config, model);
  return trained_bytes(config, trained_table(config, model)) + (critic ? trained_bytes(config, *critic) : 0) +
         kProgress;
}

int64_t plan_disk(const RunConfig& config, const layers::DecoderConfig& model, const LearnerSizes& sizes) {
  const bool evaluates = !config.data.eval.empty() || config.data.eval_fraction > 0;
  // Files of several ranks have their own lists of names, and where their elements are in the whole.
  constexpr int64_t kPlaces = 4;
  const WeightTable trained = trained_table(config, model);
  const std::optional<WeightTable> critic = critic_table(config, model);
  const int64_t lists =
      (sizes.ranks - 1) * kPlaces * (header_bytes(trained, 3) + (critic ? header_bytes(*critic, 3) : 0));
  const int64_t state = state_bytes(config, model) + lists,
                result = result_bytes(config, trained, config.adapters.empty() ? sizes.extra_bytes : 0);
  int64_t most = 0;
  for (const Counts& counts : moments_of(config, sizes, evaluates))
    most = std::max(most, counts.states * state + counts.results * result);
  // A critic's result is written behind everything else.
  if (critic) {
    const bool whole = !recipe_of(config).critic(config)->lora;
    const Counts last = moments_of(config, sizes, evaluates)[kFinalResult];
    most = std::max(most, last.states * state + last.results * result +
                              result_bytes(config, *critic, whole ? sizes.extra_bytes : 0));
  }
  const bool copied = !config.adapters.empty() && !config.adapters.front().from.empty();
  return most + (copied ? result : 0) + recipe_of(config).stored_bytes(config, sizes.documents) +
         logged_bytes(sizes.steps);
}

}  // namespace temper::recipes
