#include "recipes/loop/training_loop.h"

#include <array>
#include <span>

#include "backends/timed_choices.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "collectives/at_root.h"
#include "data/inspect.h"
#include "ops/report.h"
#include "parallel/same_on_all_ranks.h"
#include "recipes/loop/colocation.h"
#include "recipes/loop/evaluation.h"
#include "recipes/loop/planned_memory.h"
#include "recipes/plans/run_kernels.h"
#include "recipes/setup/quantizer_state.h"

namespace temper::recipes {
namespace {

constexpr const char* kStops =
    "\ntemper: a signal: stopping after this step, and saving (Ctrl-\\ ends at once, and saves nothing)\n";

void log_data(const Learners& learners) {
  for (const auto& learner : learners) {
    log_info("data: " + data::describe_formats(learner->data().train));
    if (const std::string unused = data::describe_unused(learner->data().train); !unused.empty())
      log_info("data: " + unused);
  }
}

}  // namespace

TrainingLoop::TrainingLoop(const RunConfig& config, const std::string& resolved_yaml,
                           const RunOptions& options, collectives::Group& ranks)
    : folder_(config.output, resolved_yaml),
      options_(options),
      setup_(config, "", ranks),
      learners_(setup_),
      checkpoints_(setup_, learners_),
      progress_(setup_),
      profile_(options.profile_steps, setup_.facts, config.model.dtype, folder_.files().trace(),
               setup_.ranks),
      results_(setup_, learners_, checkpoints_, progress_, profile_),
      ending_(setup_, learners_, checkpoints_, results_, progress_),
      evaluator_(setup_, learners_, checkpoints_, ending_),
      weight_sync_(setup_, learners_, ending_),
      step_(setup_),
      deadline_(setup_.ranks) {}

void TrainingLoop::run() {
  try {
    prepare_and_train();
  } catch (const Error& error) {
    progress_.finish();  // its last line stands above the error, in console.log as well
    log_quietly(fmt::format("temper: {}", error.what()));
    throw;
  }
}

void TrainingLoop::prepare_and_train() {
  const ops::Preferences preferred = preferred_kernels(setup_.config, setup_.facts);
  const RunMemory plan = plan_memory(setup_, learners_, options_, preferred);
  open_folder();
  const backends::RunChoices choices(folder_.files().algorithms(), has_states(setup_.config));
  load_model(preferred);
  const std::vector<ops::ModuleKernel> kernels = setup_.model->decoder.ops().bindings();
  start_learners();
  train_and_finish(kernels);
  explain_memory(setup_, options_, plan);
  learners_.check_all_completed();
}

void TrainingLoop::open_folder() {
  const Device device = setup_.facts.device;
  if (const std::string policy = stated_policy(colocation_of(setup_.config, device), device); !policy.empty())
    log_info(policy);
  if (const std::string unread = eval_key_without_effect(setup_.config); !unread.empty()) log_warning(unread);
  collectives::at_root(setup_.ranks, "opening the folder", [&] {
    folder_.open(setup_.config);
    log_info("checkpoints: " + checkpoints_.plan());
    folder_.open_learners(setup_.config, learners_);
  });
  parallel::check_shared_folder(setup_.ranks, setup_.config.output);
}

void TrainingLoop::load_model(const ops::Preferences& preferred) {
  setup_.load_weights(preferred, options_.verbose);
  parallel::check_same_on_all_ranks(setup_.ranks, "model and data", setup_.origin.meaning.dump());
  collectives::at_root(setup_.ranks, "kernels of before", [&] {
    folder_.warn_of_other_kernels(setup_.model->decoder.ops(), preferred.kernels);
  });
}

void TrainingLoop::start_learners() {
  if (learners_.are_adapters())
    quantize_base(setup_, folder_.files().calibration(), [&] { return learners_.rows_to_calibrate(); });
  learners_.start_each([](Learner& learner) { learner.build(); });
  step_.prepare(learners_);
  log_data(learners_);
  learners_.start_each([](Learner& learner) { learner.start(); });
  collectives::at_root(setup_.ranks, "keeping the configuration",
                       [&] { folder_.write_records(setup_, learners_); });
  progress_.find_peak_flops();
  weight_sync_.connect();
}

void TrainingLoop::train_and_finish(const std::vector<ops::ModuleKernel>& kernels) {
  try {
    {
      const StopSignals signals(setup_.ranks.rank() == 0 ? kStops : nullptr, true);
      send_weights(true);
      train(signals);
      checkpoints_.finish();
      results_.raise_errors_if_any();
    }
    // Written again before the check, whose Error names both kernels.
    collectives::at_root(setup_.ranks, "kernels at the end", [&] { folder_.write_kernels(setup_); });
    ops::check_unchanged(kernels, setup_.model->decoder.ops().bindings());
    for (const auto& learner : learners_) learner->finish();
    results_.raise_errors_if_any();
  } catch (const Error& error) {
    ending_.stop_by_error(error);
  }
}

void TrainingLoop::train(const StopSignals& signals) {
  progress_.begin();
  evaluator_.evaluate_pending();
  while (!learners_.all_done()) {
    profile_.before_step();
    const double start = seconds_now();
    deadline_.begin_step();
    train_one_step();
    if (setup_.config.parallel.check)
      for (const auto& learner : learners_) learner->check_replicas();
    const Requests requests = requests_of_all_ranks(signals);
    deadline_.end_step(seconds_now() - start);
    if (requests.has_errors) results_.raise_errors();
    if (requests.commit) checkpoints_.commit();
    evaluate_and_save(requests.stop || requests.save);
    send_weights(false);
    if (requests.stop && !learners_.all_done()) ending_.stop_by_signal("after");
  }
  profile_.finish();
  progress_.finish();
}

// On a device a step is collected when the next one has been begun, so that the device never waits for the
// CPU. With rollouts, which wait for the device anyway, a step is collected at once: the seconds until its
// report include its own rollout, not the next one.
void TrainingLoop::train_one_step() {
  const std::vector<Learner*> learners = read_batches();
  deadline_.begin_step();  // a rollout had one of its own
  if (learners.empty()) return;
  std::vector<training::PendingStep> pending = step_.begin(learners);
  setup_.phases->end_update(setup_.ranks);
  results_.collect();
  for (size_t i = 0; i < learners.size(); ++i) learners[i]->begun(std::move(pending[i]));
  if (setup_.facts.device.type == DeviceType::kCpu || recipe_of(setup_.config).rollouts != nullptr)
    results_.collect();
}

// A row that stops a learner must not lose the steps before it.
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
      const Error error = collectives::caught_by_all(setup_.ranks, "rows that cannot be used", caught);
      results_.collect_and_raise();
      if (error.kind() == ErrorKind::kInterrupted) {
        for (Learner* const read : learners) read->rows().put_back();
        ending_.stop_by_signal("in the rollout after");
      }
      results_.drop(*learner, error, StepResults::Cause::kData);
    }
  }
  return learners;
}

TrainingLoop::Requests TrainingLoop::requests_of_all_ranks(const StopSignals& signals) {
  const bool is_root = setup_.ranks.rank() == 0;
  std::array<int, 4> ranks_that{signals.requested() ? 1 : 0, checkpoints_.is_written() ? 1 : 0,
                                is_root && checkpoints_.is_due_by_time() ? 1 : 0,
                                results_.has_errors() ? 1 : 0};
  setup_.ranks.sum("requests to stop, checkpoints written or due, troubles", std::span<int>(ranks_that));
  return {.stop = ranks_that[0] > 0,
          .save = ranks_that[2] > 0,
          .commit = ranks_that[1] == setup_.ranks.size(),
          .has_errors = ranks_that[3] > 0};
}

void TrainingLoop::evaluate_and_save(bool save_all) {
  if (evaluator_.due().empty() && checkpoints_.due(save_all).empty()) return;
  results_.collect_and_raise();  // which may drop a learner
  const std::vector<Learner*> saved = checkpoints_.due(save_all);
  evaluator_.evaluate(evaluator_.due());
  checkpoints_.save(saved);
}

// Of weights that diverged nothing is sent. A run that was resumed sends what it continues with.
void TrainingLoop::send_weights(bool resumed) {
  if (weight_sync_.due(resumed).empty()) return;
  results_.collect_and_raise();  // which may drop a learner
  weight_sync_.send(weight_sync_.due(resumed));
}

}  // namespace temper::recipes
