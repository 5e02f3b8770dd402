#include "recipes/loop/training_loop.h"

#include <algorithm>
#include <array>
#include <span>

#include "backends/timed_choices.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "base/threads.h"
#include "base/trace.h"
#include "checkpoints/kept_codes.h"
#include "collectives/at_root.h"
#include "data/inspect.h"
#include "models/folder_config.h"
#include "parallel/same_on_all_ranks.h"
#include "recipes/keys/adapter_config.h"
#include "recipes/keys/recipe.h"
#include "recipes/loop/colocation.h"
#include "recipes/loop/evaluation.h"
#include "recipes/parts/exchange_plan.h"
#include "recipes/parts/output.h"
#include "recipes/plans/mesh.h"
#include "recipes/plans/plan.h"
#include "recipes/plans/quantizer_report.h"
#include "recipes/plans/run_kernels.h"
#include "recipes/setup/rollout_model.h"

namespace temper::recipes {

namespace {

// Errors say whose they are.
template <class F>
void named(const std::string& adapter, const F& f) {
  try {
    f();
  } catch (const Error& error) {
    if (adapter.empty()) throw;
    throw Error(fmt::format("[adapters.{}] {}", adapter, error.what()), error.kind());
  }
}

// `shares_data`: what is wrong with its data is wrong for all adapters.
std::unique_ptr<Learner> learner_of(const RunSetup& setup, const RunConfig& run, bool shares_data) {
  const std::string name = run.adapters.empty() ? "" : run.adapters.front().name;
  std::optional<DataSets> data;
  named(shares_data ? "" : name, [&] { data.emplace(DataSets::load(run, setup.text)); });
  std::unique_ptr<Learner> learner;
  named(name, [&] { learner = std::make_unique<Learner>(setup, run, std::move(*data)); });
  return learner;
}

// Without the notes on which keys were written.
std::string values_of(std::string yaml) {
  constexpr std::string_view kNote = "  # written";
  for (size_t at; (at = yaml.find(kNote)) != std::string::npos;) yaml.erase(at, kNote.size());
  return yaml;
}

// Adapters of runs that have started resume from their own copies.
RunConfig with_sources(RunConfig config) {
  for (AdapterConfig& adapter : config.adapters) {
    const RunFiles files{run_of_adapter(config, adapter).output};
    if (!adapter.from.empty() && is_directory(files.from()) &&
        !checkpoints::list_states(files.states()).empty())
      adapter.begun_from = files.from();
  }
  return config;
}

void check_can_be_saved(const std::string& folder) {
  if (checkpoints::quantized_form_of(folder) == nullptr) return;
  const WeightTable table = layers::decoder_weight_table(
      models::configure(models::config_of_folder(folder), join_path(folder, "config.json")));
  if (table.keeps_some()) checkpoints::check_kept(checkpoints::ModelFolder::open(folder), table);
}

// What is trained in full is saved in the end: where that cannot be, nothing is trained.
void check_results(const RunConfig& config) {
  if (config.adapters.empty()) check_can_be_saved(config.model.path);
  if (const auto critic = recipe_of(config).critic(config); critic && !critic->lora)
    check_can_be_saved(critic->folder);
}

}  // namespace

void check_run(const RunConfig& config) {
  check_output(config.output);
  check_recipe(config);
  check_evaluations(config);
  check_adapters(config);
  check_quantize(config);
  check_exchange(config);
}

void plan_run(const RunConfig& config, const std::string& resolved_yaml, const RunOptions& options,
              int ranks) {
  RunConfig here = config;
  here.parallel = {};
  RunOptions planned = options;
  planned.planned = mesh_of(config, ranks);
  train(here, resolved_yaml, planned);
}

void train(const RunConfig& config, const std::string& resolved_yaml, const RunOptions& options,
           collectives::Group& ranks) {
  check_run(config);
  if (options.dry_run && !ranks.is_alone()) {
    if (ranks.rank() == 0) plan_run(config, resolved_yaml, options, ranks.size());
    return;
  }
  parallel::check_same_program(ranks);
  parallel::check_same_on_all_ranks(ranks, "configuration", values_of(resolved_yaml));
  TrainingLoop(with_sources(config), resolved_yaml, options, ranks).run();
}

TrainingLoop::TrainingLoop(const RunConfig& config, const std::string& resolved_yaml,
                           const RunOptions& options, collectives::Group& ranks)
    : options_(options),
      resolved_yaml_(resolved_yaml),
      setup_(config, "", ranks),
      files_{config.output},
      saver_(setup_.ranks, *setup_.kept_errors, config.checkpoint.async),
      clock_(config.checkpoint, seconds_now()),
      exchange_(setup_),
      profile_(options.profile_steps, setup_.facts, config.model.dtype, files_.trace(), setup_.ranks) {
  check_results(config);
  for (const AdapterConfig& adapter : config.adapters)
    learners_.push_back(
        learner_of(setup_, run_of_adapter(config, adapter), adapter.train.empty() && adapter.eval.empty()));
  if (learners_.empty()) learners_.push_back(learner_of(setup_, config, true));
}

void TrainingLoop::run() {
  try {
    begin_and_train();
  } catch (const Error& error) {
    progress_.reset();  // its last line stands above the error, in console.log as well
    log_quietly(fmt::format("temper: {}", error.what()));
    throw;
  }
}

void TrainingLoop::begin_and_train() {
  const ops::Preferences preferred = preferred_kernels(setup_.config, setup_.facts);
  Setting setting{setup_.model_config, setup_.facts, preferred};
  setting.mesh = options_.dry_run ? options_.planned : setup_.mesh;
  check_mesh(setting.mesh, setup_.architecture, setup_.config);
  if (const Recipe& recipe = recipe_of(setup_.config); recipe.rollouts != nullptr)
    if (const auto degrees = recipe.rollouts(setup_.config).degrees)
      rollout_mesh(*degrees, setting.mesh, setup_.architecture, setup_.config);  // refuses what cannot be
  setting.ranks_here = setup_.ranks.on_machine().ranks;
  for (const auto& learner : learners_) setting.samples.push_back(learner->sample());
  RunMemory plan = rehearse(setup_.config, setting);
  const Pool& memory = pool(setup_.facts.device);
  if (plan.rollouts) share_memory(plan, memory.limit());
  check_memory(setup_.config, setting, plan, memory.limit());
  if (options_.dry_run) {
    const backends::RunChoices tried(files_.algorithms(), has_states(setup_.config),
                                     backends::KeepChoices::kNo);
    return check(preferred, plan);
  }
  state_memory_policy();
  if (const std::string unread = eval_key_without_effect(setup_.config); !unread.empty()) log_warning(unread);
  collectives::at_root(setup_.ranks, "opening the folder", [&] { open_folders(); });
  const backends::RunChoices choices(files_.algorithms(), has_states(setup_.config));
  setup_.load_weights(preferred, options_.verbose);
  parallel::check_same_on_all_ranks(setup_.ranks, "model and data", setup_.origin.dump());
  collectives::at_root(setup_.ranks, "kernels of before", [&] { compare_kernels(preferred.kernels); });
  const std::vector<ops::ModuleKernel> bound = setup_.model->decoder.ops().bindings();
  if (learners_.front()->is_adapter()) quantize_base();
  begin_each(&Learner::build);
  if (learners_.front()->is_adapter())
    adapters_ = std::make_unique<training::AdapterTrainer>(
        setup_.model->decoder, trainer_options(setup_.config, setup_.model->decoder, 1),
        setup_.groups->data());
  for (const auto& learner : learners_) {
    log_info("data: " + data::describe_formats(learner->data().train));
    if (const std::string unused = data::describe_unused(learner->data().train); !unused.empty())
      log_info("data: " + unused);
  }
  begin_each(&Learner::start);
  collectives::at_root(setup_.ranks, "keeping the configuration", [&] { keep_record(); });
  find_peak();
  exchange_.greet();
  train_and_finish(bound);
  explain_memory(plan);
  fail_if_any_was_lost();
}

void TrainingLoop::state_memory_policy() const {
  const Device device = setup_.facts.device;
  const std::string policy = stated_policy(colocation_of(setup_.config, device), device);
  if (!policy.empty()) log_info(policy);
}

// Rollouts get what training leaves.
void TrainingLoop::share_memory(RunMemory& plan, int64_t limit) {
  const RolloutMemory& rollouts = *plan.rollouts;
  const int64_t wished = rollouts.wish.engine.cache_tokens;
  int64_t tokens = rollouts.cache_that_fits(limit, setup_.facts.device);
  // Ranks that answer together have room for the same requests.
  for (const int64_t other : setup_.ranks.gather("tokens of caches", tokens))
    tokens = std::min(tokens, other);
  setup_.cache_tokens = tokens;
  plan.set_cache(tokens);
  if (options_.explain_memory) print(phases_table(plan.updates, rollouts, tokens));
  if (tokens == wished) return;
  log_info(
      fmt::format("rollouts: KV cache of {} tokens ({} requested): so many fit into {} beside "
                  "what stays of training",
                  tokens, wished, format_bytes(limit)));
}

// Of several adapters those whose data all ranks can read continue.
void TrainingLoop::begin_each(void (Learner::*begin)()) {
  for (size_t i = 0; i < learners_.size();) {
    Learner& learner = *learners_[i];
    try {
      collectives::at_each(setup_.ranks, "what begins",
                           [&] { named(learner.name(), [&] { (learner.*begin)(); }); });
      ++i;
    } catch (const Error& error) {
      if (!collectives::is_of_all(setup_.ranks, error) || error.kind() != ErrorKind::kInput ||
          learners_.size() == 1)
        throw;
      log_warning(fmt::format("{}; this adapter does not start, the others continue", error.what()));
      refused_.push_back(fmt::format("{} did not start: {}", learner.name(), error.what()));
      learners_.erase(learners_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
}

void TrainingLoop::train(const StopSignals& signals) {
  parallel::StepDeadline deadline(setup_.ranks);
  if (is_root()) progress_ = std::make_unique<reports::Progress>();
  evaluate_what_is_owed();
  const auto goes_on = [](const auto& learner) { return !learner->is_done(); };
  while (std::any_of(learners_.begin(), learners_.end(), goes_on)) {
    profile_.before_step();
    const double start = seconds_now();
    deadline.begin_step();
    train_one(deadline);
    if (setup_.config.parallel.check)
      for (const auto& learner : learners_) learner->check_replicas();
    std::array<int, 4> ranks_that{signals.requested() ? 1 : 0, saver_.is_written() ? 1 : 0,
                                  is_root() && clock_.is_due(seconds_now()) ? 1 : 0, has_trouble() ? 1 : 0};
    setup_.ranks.sum("requests to stop, checkpoints written or due, troubles", std::span<int>(ranks_that));
    const bool stop = ranks_that[0] > 0;
    deadline.end_step(seconds_now() - start);
    if (ranks_that[3] > 0) settle();
    if (ranks_that[1] == setup_.ranks.size()) saver_.commit();
    evaluate_and_save(stop, ranks_that[2] > 0);
    send_weights(false);
    if (!stop || std::none_of(learners_.begin(), learners_.end(), goes_on)) continue;
    end_interrupted("after");
  }
  profile_.finish();
  if (progress_) progress_->finish();
  progress_.reset();
}

// On a device a step is reported when the next one has been asked for, so that the device never waits for us;
// with rollouts, which wait for the device, at once, so that its seconds have the rollout before it and not
// the next.
void TrainingLoop::train_one(parallel::StepDeadline& deadline) {
  const std::vector<Learner*> learners = read_batches();
  deadline.begin_step();  // a rollout had one of its own
  if (learners.empty()) return;
  std::vector<training::PendingStep> pending = begin(learners);
  setup_.phases->end_update(setup_.ranks);
  report_all();
  for (size_t i = 0; i < learners.size(); ++i) learners[i]->begun(std::move(pending[i]));
  if (setup_.facts.device.type == DeviceType::kCpu || recipe_of(setup_.config).rollouts != nullptr)
    report_all();
}

// A row that ends a learner must not cost what was trained before it.
std::vector<Learner*> TrainingLoop::read_batches() {
  std::vector<Learner*> learners;
  for (const auto& learner : learners_) {
    if (learner->is_done()) continue;
    try {
      learner->read_batch();
      learners.push_back(learner.get());
    } catch (const collectives::GroupBroken&) {
      throw;
    } catch (const Error& caught) {
      const Error error = collectives::caught_by_all(setup_.ranks, "rows that cannot be learnt from", caught);
      report_all();
      settle_if_any();
      if (error.kind() == ErrorKind::kInterrupted) {
        for (Learner* const read : learners) read->put_back_batch();
        end_interrupted("in the rollout after");
      }
      lose(*learner, error, true);
    }
  }
  return learners;
}

std::vector<training::PendingStep> TrainingLoop::begin(const std::vector<Learner*>& learners) try {
  std::vector<training::PendingStep> pending;
  if (learners.front()->is_held()) {  // which is alone
    pending.push_back(learners.front()->begin_held());
    return pending;
  }
  if (!adapters_) {
    pending.push_back(learners.front()->begin_alone());
    return pending;
  }
  std::vector<training::AdapterShare> shares;
  for (const Learner* learner : learners) shares.push_back(learner->share());
  return adapters_->begin(shares);
} catch (...) {
  setup_.groups->end_beside();
  throw;
}

void TrainingLoop::report_all() {
  std::vector<Learner::Report> reports;
  for (const auto& learner : learners_) try {
      if (auto report = learner->report(peak_flops_)) reports.push_back(std::move(*report));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kInput)
        throw;  // of the ranks or the device; a loss that diverges is kInput
      failed_.emplace(learner.get(), error);
    }
  if (!reports.empty() && is_root()) show(reports);
}

void TrainingLoop::evaluate(const std::vector<Learner*>& learners) {
  size_t evaluated = 0;
  try {
    for (; evaluated < learners.size(); ++evaluated) learners[evaluated]->evaluate();
  } catch (const collectives::GroupBroken&) {
    throw;
  } catch (const Error& caught) {
    if (!recipe_of(setup_.config).rollouts) throw;
    const Error error = collectives::caught_by_all(setup_.ranks, "an evaluation that cannot be had", caught);
    const bool interrupted = error.kind() == ErrorKind::kInterrupted;
    if (error.kind() != ErrorKind::kInput && !interrupted) throw;
    // A reward that fails on all ranks, for example.
    for (; evaluated < learners.size(); ++evaluated) learners[evaluated]->owe_evaluation();
    if (interrupted) end_interrupted("in the evaluation after");
    save_what_is_learnt();
    throw Error(
        fmt::format("{}; the steps before this evaluation are saved in {}", error.what(), files_.folder));
  }
}

// Of a run that was stopped in an evaluation.
void TrainingLoop::evaluate_what_is_owed() {
  std::vector<Learner*> owing;
  for (const auto& learner : learners_)
    if (learner->owes_evaluation()) owing.push_back(learner.get());
  evaluate(owing);
  saver_.save(owing, true);
}

void TrainingLoop::evaluate_and_save(bool stopping, bool saving) {
  const auto is_due = [](const Learner& learner, int64_t every) {
    return learner.is_done() || (every > 0 && learner.step() % every == 0);
  };
  std::vector<Learner*> evaluated, saved;
  const auto choose = [&] {
    evaluated.clear();
    saved.clear();
    for (const auto& learner : learners_) {
      if (!learner->stop_reason().empty() || !learner->is_unsaved()) continue;
      if (is_due(*learner, learner->config().eval.every_steps)) evaluated.push_back(learner.get());
      if (stopping || saving || is_due(*learner, learner->config().checkpoint.every_steps.value_or(0)))
        saved.push_back(learner.get());
    }
    return !evaluated.empty() || !saved.empty();
  };
  if (!choose()) return;
  report_all();
  settle_if_any();
  choose();  // a learner may be lost
  evaluate(evaluated);
  for (Learner* learner : saved) learner->check_replicas();
  // All states appear together: a process that is killed resumes from one step.
  if (saved.empty()) return;
  const double start = seconds_now();
  saver_.save(saved);
  clock_.saved(start, seconds_now());
}

}  // namespace temper::recipes
