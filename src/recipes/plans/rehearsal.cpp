#include "recipes/plans/rehearsal.h"

#include <algorithm>
#include <functional>
#include <mutex>
#include <utility>

#include "checkpoints/states/owned_tensors.h"
#include "collectives/local/local.h"
#include "data/rows/answers.h"
#include "models/folder_config.h"
#include "models/model.h"
#include "parallel/model_parts.h"
#include "parallel/weight_copy.h"
#include "recipes/keys/adapter_config.h"
#include "recipes/keys/recipe.h"
#include "recipes/parts/critic.h"
#include "recipes/parts/exchange_plan.h"
#include "recipes/parts/run_options.h"
#include "recipes/plans/mesh.h"
#include "recipes/plans/pipeline_checks.h"
#include "recipes/plans/rehearsed_rows.h"
#include "training/adapter_trainer.h"
#include "training/objectives/gather_rows.h"

namespace temper::recipes {
namespace {

constexpr Device kCountedHost{DeviceType::kCounted, 0};

std::unique_ptr<models::Model> counted_model(const RunConfig& config, const Json& model,
                                             const Setting& setting, const layers::ModelRanks& ranks,
                                             bool frozen = false) {
  models::BuildOptions build = build_options(config, setting.facts, setting.preferred);
  if (frozen) build.quantize = {};
  build.counted = true;
  build.ranks = ranks;
  auto counted = models::build_model(model, join_path(config.model.path, "config.json"), build);
  if (!config.adapters.empty()) counted->decoder.quantizers().set_weights_rounded();
  return counted;
}

std::unique_ptr<models::Model> second_model(const RunConfig& config, const Setting& setting,
                                            const parallel::MeshGroups& groups) {
  const std::optional<std::string> folder = recipe_of(config).second_model(config);
  if (!folder) return nullptr;
  const Json model = *folder == config.model.path ? setting.model : models::config_of_folder(*folder);
  const layers::DecoderConfig architecture = models::configure(model, join_path(*folder, "config.json"));
  return counted_model(config, model, setting,
                       model_ranks(groups, architecture, config, setting.facts.device), true);
}

optimizers::AdamWOptions optimizer_options(const RunConfig& config) {
  optimizers::AdamWOptions options;
  options.format = config.train.format();
  return options;
}

// The rows of a step that is less full: of another shape on devices that capture work.
std::vector<data::PackedRow> shortened(std::vector<data::PackedRow> rows) {
  data::PackedRow& last = rows.back();
  int64_t size = last.size(), wanted = size - training::kTokenStep;
  if (wanted <= 0) return rows;
  while (last.document_lengths.size() > 1 && size > wanted) {
    size -= last.document_lengths.back();
    last.document_lengths.pop_back();
  }
  if (size > wanted) {  // the one that is left
    last.document_lengths.back() -= size - wanted;
    size = wanted;
  }
  last.ids.resize(static_cast<size_t>(size));
  last.targets.resize(static_cast<size_t>(size));
  last.targets.front() = last.ids.front();  // at least one target
  last.sources.resize(last.document_lengths.size());
  last.answers.clear();
  return rows;
}

// The ranks of a plan. The first one of a stage is rehearsed.
struct PlannedRanks {
  // Of rollouts that divide the model in a way of their own; `rank`: the one that is rehearsed.
  PlannedRanks(const Mesh& mesh, int rank)
      : all(collectives::planned_group(mesh.size(), rank)), groups(*all, mesh) {}
  PlannedRanks(const RunConfig& config, const Setting& setting)
      : all(collectives::planned_group(setting.mesh.size() * static_cast<int>(config.parallel.pipeline),
                                       setting.mesh.size() * setting.stage.value(), setting.listener)),
        groups(*all, setting.mesh),
        most_passes(setting.most_passes) {}
  std::vector<data::PackedRow> own(const RunConfig& config, const Sample& sample) const {
    return own_rows(config, sample, groups.rows().size(), most_passes);
  }

  std::unique_ptr<collectives::Group> all;
  parallel::MeshGroups groups;
  int64_t most_passes = 0;
};

// Checkpoints are written from these copies while updates continue.
std::vector<Tensor> copies_of_state(const RunConfig& config, const std::vector<PlacedTensor>& state) {
  std::vector<Tensor> copies;
  if (!config.checkpoint.async) return copies;
  const checkpoints::OwnedTensors written(state, 0);
  for (const checkpoints::TensorInfo& info : written.infos())
    copies.push_back(Tensor::empty(info.shape, info.dtype, MemoryTag::kData, kCountedHost));
  return copies;
}

// A critic, where there is one, as it is between its updates, which come before the learner's.
struct RehearsedCritic {
  RehearsedCritic(const RunConfig& config, const Setting& setting, const PlannedRanks& ranks) {
    const std::optional<CriticSettings> wish = recipe_of(config).critic(config);
    if (!wish) return;
    const Json model =
        wish->folder == config.model.path ? setting.model : models::config_of_folder(wish->folder);
    models::BuildOptions build = own_build_options(config, setting.facts, setting.preferred);
    layers::DecoderConfig architecture = models::configure(model, join_path(wish->folder, "config.json"));
    architecture.gives_values = true;
    build.counted = true;
    build.ranks = model_ranks(ranks.groups, architecture, config, setting.facts.device);
    build.gives_values = true;
    auto body = models::build_model(model, join_path(config.model.path, "config.json"), build);
    const layers::ParameterStore& base = body->decoder.parameters();
    auto adapter = wish->lora ? std::make_unique<layers::Adapter>(
                                    plan_lora(base.table(), *wish->lora, "grpo.critic."), *wish->lora, base)
                              : nullptr;
    critic = std::make_unique<Critic>(std::move(body), std::move(adapter), config, *wish, ranks.groups);
    copies = copies_of_state(config, critic->state());
    const std::vector<data::PackedRow> rows = ranks.own(config, setting.sample_of(0));
    for (int i = 0; i < 2; ++i) critic->learn(rows);
    critic->values(rows);
  }

  std::unique_ptr<Critic> critic;
  std::vector<Tensor> copies;  // of its state, for checkpoints
};

// What comes after updates, while all that they keep is there: of what is trained, the model or an adapter.
using AfterUpdates = std::function<void(layers::ParameterStore& trained, const layers::Adapter* adapter)>;

// Makes two updates, the second of which is listened to; of a rank alone a third one, as work that may be
// captured is not while something listens.
template <class F>
void update_twice(UpdateListener* listener, bool is_alone, const F& update) {
  update();
  if (listener == nullptr || is_alone) update();
  if (listener == nullptr) return;
  const trace::Listener::Scope listening(*listener);
  update();
}

void rehearse_model(const RunConfig& config, models::Model& model, const Setting& setting,
                    const std::shared_ptr<const training::Objective>& objective, const PlannedRanks& ranks,
                    const AfterUpdates& after) {
  const Sample sample = setting.sample_of(0);
  optimizers::AdamW optimizer(model.decoder.parameters(), model.decoder.ops(), optimizer_options(config),
                              ranks.groups.sharing());
  training::Trainer trainer(model.decoder, optimizer, trainer_options(config, model.decoder, 1), objective,
                            ranks.groups.update());
  const std::vector<Tensor> copies = copies_of_state(config, optimizer.state());
  const std::vector<data::PackedRow> full = ranks.own(config, sample);
  // A step is captured when its shape occurs again, and graphs keep their memory: in addition to the graphs
  // of full steps there are those of smaller steps before them.
  if (ranks.all->is_alone())
    for (int i = 0; i < 2; ++i) trainer.step(objective ? full : shortened(full), 0);
  update_twice(setting.listener, ranks.all->is_alone(), [&] { trainer.step(full, 0); });
  if (evaluates(config)) trainer.evaluate(eval_rows(config, sample));
  after(model.decoder.parameters(), nullptr);
}

// An adapter as if it were alone.
struct RehearsedAdapter {
  RunConfig config;
  layers::Adapter weights;
  optimizers::AdamW optimizer;
  Sample sample;
  std::vector<data::PackedRow> rows;
  std::vector<Tensor> copies;

  RehearsedAdapter(const RunConfig& own, const models::Model& model, Sample given, const PlannedRanks& ranks)
      : config(own),
        weights(of(own, model)),
        optimizer(weights.parameters(), model.decoder.ops(), optimizer_options(own), ranks.groups.sharing()),
        sample(std::move(given)),
        rows(ranks.own(own, sample)),
        copies(copies_of_state(own, optimizer.state())) {}

 private:
  static layers::Adapter of(const RunConfig& config, const models::Model& model) {
    const layers::ParameterStore& base = model.decoder.parameters();
    const AdapterChoice choice = choose_adapter(config.adapters.front(), base.table());
    return {choice.plan, choice.lora, base};
  }
};

void rehearse_adapters(const RunConfig& config, const models::Model& model, const Setting& setting,
                       const std::shared_ptr<const training::Objective>& objective, const PlannedRanks& ranks,
                       const AfterUpdates& after) {
  std::vector<std::unique_ptr<RehearsedAdapter>> adapters;
  for (size_t i = 0; i < config.adapters.size(); ++i)
    adapters.push_back(std::make_unique<RehearsedAdapter>(run_of_adapter(config, config.adapters[i]), model,
                                                          setting.sample_of(i), ranks));
  std::vector<training::AdapterShare> shares;
  for (const auto& adapter : adapters)
    shares.push_back({.adapter = &adapter->weights,
                      .optimizer = &adapter->optimizer,
                      .rows = &adapter->rows,
                      .objective = objective.get()});
  training::AdapterTrainer trainer(model.decoder, trainer_options(config, model.decoder, 1),
                                   ranks.groups.update());
  update_twice(setting.listener, ranks.all->is_alone(), [&] {
    for (training::PendingStep& step : trainer.begin(shares)) step.wait();
  });
  for (const auto& adapter : adapters) {
    if (!evaluates(adapter->config)) continue;
    const std::vector<data::PackedRow> rows = eval_rows(adapter->config, adapter->sample);
    objective
        ? objective->evaluate(rows, &adapter->weights, collectives::alone())
        : training::evaluate(model.decoder, &adapter->weights, rows, config.train.compute.micro_batch_tokens);
  }
  for (const auto& adapter : adapters) after(adapter->weights.parameters(), &adapter->weights);
}

// The model of rollouts that divide it in a way of their own; null: they use the one that is trained.
struct RolloutsApart {
  RolloutsApart(const RunConfig& config, const Setting& setting, const std::optional<Mesh>& mesh) {
    if (!mesh) return;
    ranks.emplace(*mesh, setting.stage.value() * setting.mesh.size());
    model = counted_model(config, setting.model, setting, ranks->groups.model());
  }
  // What is trained comes to it; of an adapter, which it has then, too.
  std::unique_ptr<layers::Adapter> copy(const layers::ParameterStore& trained, const layers::Adapter* adapter,
                                        collectives::Group& all) const {
    if (!model) return nullptr;
    layers::ParameterStore& base = model->decoder.parameters();
    if (adapter == nullptr) {
      parallel::WeightCopy(trained, base, all).run();
      return nullptr;
    }
    auto own = std::make_unique<layers::Adapter>(adapter->plan(), adapter->config(), base);
    parallel::WeightCopy(trained, own->parameters(), all).run();
    return own;
  }

  std::optional<PlannedRanks> ranks;
  std::unique_ptr<models::Model> model;
};

MemoryPlan peaks_of(const Pool& memory) {
  MemoryPlan plan;
  const MemoryUsage usage = memory.usage();
  for (size_t i = 0; i < usage.size(); ++i) plan.peaks[i] = usage[i].peak;
  plan.total = memory.peak_live();
  return plan;
}

// Of hidden states that a model keeps for the passes of an update that are not rehearsed.
int64_t bytes_read_ahead(const RunConfig& config, const Setting& setting, const layers::Decoder& model) {
  const PassCounts passes =
      passes_of(config, setting.sample_of(0), setting.mesh.row_ranks(), setting.most_passes);
  const int64_t tokens = std::max(config.train.compute.micro_batch_tokens, row_tokens(config));
  return (passes.all - passes.rehearsed) * (tokens / setting.mesh.context) * model.config().hidden_size *
         size_of(model.parameters().dtype());
}

// `counted`: the pool of the device. Returns the layers of the stage.
std::vector<parallel::LayerRange> rehearse_on(const RunConfig& config, const Setting& setting,
                                              const Pool& counted, RunMemory& plan) {
  const PlannedRanks ranks(config, setting);
  const layers::DecoderConfig architecture = models::configure(
      setting.model, join_path(config.model.path, "config.json"), models::Purpose::kTraining);
  const std::unique_ptr<models::Model> model = counted_model(
      config, setting.model, setting, model_ranks(ranks.groups, architecture, config, setting.facts.device));
  model->decoder.prepare_positions(config.data.max_length);
  const std::unique_ptr<models::Model> second = second_model(config, setting, ranks.groups);
  const RehearsedCritic critic(config, setting, ranks);
  const Recipe& recipe = recipe_of(config);
  Recipe::Objective objective;
  if (recipe.rehearsed != nullptr)
    objective = recipe.rehearsed(config, model->decoder, second ? &second->decoder : nullptr);
  std::optional<Mesh> divided;  // of rollouts
  if (recipe.rollouts != nullptr)
    divided = rollout_mesh(recipe.rollouts(config).degrees, setting.mesh, architecture, config);
  const RolloutsApart apart(config, setting, divided);
  bool rolled = false;
  const AfterUpdates after = [&](layers::ParameterStore& trained, const layers::Adapter* adapter) {
    if (const int64_t chunk = chunk_on_device(config); chunk > 0)
      Tensor::empty({chunk}, DType::kU8, MemoryTag::kWorkspace, trained.device());
    const std::unique_ptr<layers::Adapter> copy = apart.copy(trained, adapter, *ranks.all);
    if (config.eval.exact_match > 0 && config.parallel.pipeline > 1) {
      const Mesh mesh = answering_mesh(setting.mesh, architecture, config);
      if (divided && to_string(*divided) == to_string(mesh)) {  // they share one copy of the model
        apart.copy(trained, adapter, *ranks.all);
      } else {
        const RolloutsApart questions(config, setting, mesh);
        questions.copy(trained, adapter, *ranks.all);
      }
    }
    if (!std::exchange(rolled, true)) plan.updates = peaks_of(counted);
    if (recipe.rollouts == nullptr) return;
    const RolloutSettings wish = recipe.rollouts(config);
    if (std::ranges::count(wish.asleep, training::UpdateState::kCommunication) > 0)
      ranks.groups.disconnect(apart.model != nullptr);
    RolloutMemory made = rehearse_rollout(apart.model ? apart.model->decoder : model->decoder, trained,
                                          copy ? copy.get() : adapter, wish);
    if (!plan.rollouts || plan.rollouts->plan.total < made.plan.total) plan.rollouts = std::move(made);
  };
  config.adapters.empty() ? rehearse_model(config, *model, setting, objective, ranks, after)
                          : rehearse_adapters(config, *model, setting, objective, ranks, after);
  const layers::ModelStages& stages = model->decoder.ranks().stages;
  if (stages.count() > 1 && stages.has_last() && recipe.reads_ahead(config)) {
    const int64_t bytes = bytes_read_ahead(config, setting, (second ? *second : *model).decoder);
    plan.updates.peaks[static_cast<size_t>(MemoryTag::kActivations)] += bytes;
    plan.updates.total += bytes;
  }
  return parallel::layers_of_stage(stages, setting.stage.value());
}

RunMemory rehearse_stage(const RunConfig& config, Setting setting, int stage,
                         std::vector<parallel::LayerRange>& layers) {
  setting.stage = stage;
  const bool apart = setting.facts.hardware != hardware::kCpu;
  Pool &host = pool(kCountedHost), &counted = apart ? pool({DeviceType::kCounted, 1}) : host;
  counted.reset_peak();
  host.reset_peak();
  RunMemory plan;
  layers = rehearse_on(config, setting, counted, plan);
  static_cast<MemoryPlan&>(plan) = plan.updates;
  if (plan.rollouts) plan.set_cache(plan.rollouts->least_cache());
  if (apart) plan.host_copies = host.usage()[static_cast<size_t>(MemoryTag::kData)].peak;
  return plan;
}

// The most of updates and of rollouts with so large a cache.
MemoryPlan most_of(MemoryPlan updates, const RolloutMemory& rollouts, int64_t cache_tokens) {
  const MemoryPlan rolls = rollouts.with_cache(cache_tokens);
  for (size_t i = 0; i < rolls.peaks.size(); ++i)
    updates.peaks[i] = std::max(rolls.peaks[i], updates.peaks[i]);
  updates.total = std::max(rolls.total, updates.total);
  return updates;
}

}  // namespace

void RunMemory::set_cache(int64_t tokens) {
  static_cast<MemoryPlan&>(*this) = most_of(updates, *rollouts, tokens);
  for (StageMemory& stage : stages)
    static_cast<MemoryPlan&>(stage) = most_of(stage.updates, *stage.rollouts, tokens);
}

RunMemory rehearse(const RunConfig& config, const Setting& setting) {
  static std::mutex mutex;  // one at a time: the pools are the process's
  const std::lock_guard lock(mutex);
  std::vector<parallel::LayerRange> layers;
  if (setting.stage) return rehearse_stage(config, setting, *setting.stage, layers);
  RunMemory most;
  std::optional<RolloutMemory> rollouts;  // of the stage that leaves them least
  std::vector<StageMemory> stages;
  for (int stage = 0; stage < config.parallel.pipeline; ++stage) {
    RunMemory plan = rehearse_stage(config, setting, stage, layers);
    stages.push_back({plan, std::move(layers), plan.updates, plan.rollouts});
    if (plan.rollouts && (!rollouts || plan.rollouts->plan.total > rollouts->plan.total))
      rollouts = plan.rollouts;
    if (stage == 0 || plan.total > most.total) most = std::move(plan);
  }
  if (stages.size() > 1) most.stages = std::move(stages);
  if (rollouts) {
    most.rollouts = std::move(rollouts);
    most.set_cache(most.rollouts->least_cache());
  }
  return most;
}

}  // namespace temper::recipes
