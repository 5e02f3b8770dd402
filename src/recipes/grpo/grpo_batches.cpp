#include "recipes/grpo/grpo_batches.h"

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "collectives/at_root.h"
#include "device/transfer.h"
#include "parallel/step_deadline.h"
#include "recipes/grpo/advantages.h"
#include "recipes/grpo/answers/answer_settings.h"

namespace temper::recipes {

GrpoBatches::GrpoBatches(const BatchInputs& inputs)
    : setup_(inputs.setup),
      config_(inputs.config),
      prompts_(inputs.data.train, inputs.config, grpo_keys(inputs.config).sampling.max_new_tokens),
      sampler_(inputs),
      record_(inputs.files.folder, sampler_.sharing().askers().rank(), sampler_.sharing().askers().size(),
              sampler_.sharing().leads(), settings_of(inputs)),
      held_out_(inputs.data.eval ? &*inputs.data.eval : nullptr, inputs.config),
      scorer_(inputs),
      update_(keys().updates()) {}

std::string GrpoBatches::settings_of(const BatchInputs& inputs) {
  return fmt::format("{} {} {}", inputs.config.train.seed, inputs.setup.origin.meaning.dump(),
                     settings_of_answers(grpo_keys(inputs.config)).dump());
}

data::Batch GrpoBatches::next() {
  if (update_ == keys().updates()) begin_rollout();
  data::Batch batch = updates_.batch(update_);
  if (Critic* const critic = scorer_.critic()) {
    sampler_.trained().release_gradients();  // which would need memory in addition to the critic's
    critic_report_.step = critic->learn(batch.rows);
  }
  batch.progress = prompts_.progress();
  batch.epoch = static_cast<int64_t>(batch.progress);
  ++update_;
  return batch;
}

void GrpoBatches::begin_rollout() {
  Json before = prompts_.state();
  try {
    run_rollout();
  } catch (const Error&) {
    prompts_.restore(before);
    throw;
  }
  begun_at_ = std::move(before);
  update_ = 0;
  ++next_rollout_;
}

void GrpoBatches::open_record(bool takes_over) {
  collectives::at_each(setup_.ranks, "answers of before", [&] { record_.open(next_rollout_, takes_over); });
}

void GrpoBatches::run_rollout() {
  synchronize(setup_.facts.device);  // the updates before it take no time of the rollout
  const double start = seconds_now();
  // Answers are taken over where they would be the same again.
  if (!record_.is_open()) open_record(sampler_.repeats());
  report_ = {};
  updates_ = {};
  std::vector<SampledAnswer> samples;
  Sampler::Turn turn = sampler_.begin_turn();
  setup_.phases->begin_rollout();
  // Ranks wait for each other's answers, and for verdicts, longer than for an update.
  setup_.ranks.set_deadline(parallel::StepDeadline::kLong);
  const GroupSelection selection = sample(samples);
  report_.add(sampler_.end_turn(turn));
  report_.groups = selection.num_asked();
  report_.groups_without_spread = selection.num_without_spread();
  report_.sum_over(learners());
  if (report_.answers.judged == 0)
    fail("[grpo.rewards] none of {:.0f} answers of rollout {} could be judged", report_.answers.answers,
         next_rollout_);
  learn_from(selection, std::move(samples));
  collectives::at_each(setup_.ranks, "answers that are stored", [&] { record_.end_rollout(); });
  setup_.phases->add_rollout_seconds(seconds_now() - start);
}

// Asks prompts until enough groups can be learned from.
GroupSelection GrpoBatches::sample(std::vector<SampledAnswer>& samples) {
  GroupSelection selection(keys().prompts_per_rollout, keys().group_size, keys().filter.dynamic_sampling);
  for (int64_t asked = 0; !selection.is_full(); ++report_.rounds) {
    if (report_.rounds == keys().filter.max_rounds && keys().filter.dynamic_sampling)
      fail(
          "[grpo.filter.dynamic_sampling] after {} rounds of prompts only {} of {} groups have answers whose "
          "rewards differ: the task is solved, too hard, or the reward gives every answer the same. Look at "
          "rollouts.jsonl, raise grpo.filter.max_rounds, or set dynamic_sampling: false",
          report_.rounds, selection.groups().size(), keys().prompts_per_rollout);
    AskedGroups groups{.first_group = asked};
    for (int64_t left = selection.next_count(); left > 0; --left) groups.prompts.push_back(prompts_.next());
    sampler_.ask(next_rollout_, groups, record_, report_);
    asked += std::ssize(groups.prompts);
    selection.add(groups.first_group, groups.rewards);
    std::ranges::move(groups.samples, std::back_inserter(samples));
  }
  return selection;
}

// Log-probabilities and advantages, and with them the rows of the updates.
void GrpoBatches::learn_from(const GroupSelection& selection, std::vector<SampledAnswer> samples) {
  updates_ = RolloutUpdates(config_, selection, std::move(samples));
  was_scored_ = all_are_scored();
  warn_of_nothing_learned();
  if (!was_scored_) {
    const double start = seconds_now();
    for (const SampleRows& rows : updates_.rows()) scorer_.score(rows);
    if (scorer_.are_kept()) sampler_.sharing().write_scores(updates_.samples(), record_);
    report_.scoring = seconds_now() - start;
  }
  critic_report_.explained_variance =
      set_advantages(keys(), learners(), updates_.samples(),
                     [&](const SampledAnswer& each) { return is_learned_from(keys(), each); });
  updates_.fill();
}

// Of the answers that were taken over. Scores are computed by all ranks or by none.
bool GrpoBatches::all_are_scored() const {
  const bool here = record_.takes_over() && std::ranges::all_of(updates_.samples(), &SampledAnswer::scored);
  return learners().sum("ranks whose answers have no scores", int64_t{!here}) == 0;
}

// The gradient of an update without answers is 0. That of rewards which do not differ is, too, which is said
// once: late in a run it is no mistake.
void GrpoBatches::warn_of_nothing_learned() {
  if (keys().compares_answers() && report_.groups_without_spread == report_.groups && !said_alike_) {
    said_alike_ = true;
    log_warning(fmt::format(
        "rollout {}: the answers to a prompt are all worth the same, for each of its {} prompts, and their "
        "rewards teach nothing (groups_without_spread in metrics.jsonl; 'temper rollouts show' shows them)",
        next_rollout_, report_.groups));
  }
  std::vector<int64_t> tokens = updates_.num_targets();
  learners().sum("tokens that are learned from", std::span<int64_t>(tokens));
  const auto empty = std::ranges::count(tokens, 0);
  if (empty == 0) return;
  log_warning(fmt::format(
      "rollout {}: {} of its {} updates have nothing to learn from, since all their answers were cut off "
      "(grpo.filter.on_truncated: drop) or could not be judged (grpo.filter.on_reward_error: drop)",
      next_rollout_, empty, tokens.size()));
}

Json GrpoBatches::state() const {
  if (update_ == keys().updates())
    return Json::Object{{"rollout", next_rollout_}, {"update", 0}, {"prompts", prompts_.state()}};
  return Json::Object{{"rollout", next_rollout_ - 1}, {"update", update_}, {"prompts", begun_at_}};
}

void GrpoBatches::restore(const Json& state, bool) {
  next_rollout_ = state.at("rollout").as_int();
  prompts_.restore(state.at("prompts"));
  update_ = keys().updates();
  record_.close();
  const int64_t update = state.at("update").as_int();
  if (update == 0) return;
  open_record(true);  // the weights that sampled these answers are gone
  begin_rollout();
  if (!was_scored_)
    fail(
        "[{}] rollout {} is not whole in rollouts.jsonl, but {} of its {} updates are done; restore the "
        "file, or remove the newest checkpoints down to the end of a rollout",
        config_.output, next_rollout_ - 1, update, keys().updates());
  update_ = update;
}

Json GrpoBatches::counts() const {
  Json counts = Json::Object{{"prompts", prompts_.asked()}, {"left_out", prompts_.left_out()}};
  if (prompts_.lossy() > 0) counts.set("lossy", prompts_.lossy());
  return counts;
}

std::string GrpoBatches::describe_counts() const {
  const auto also = [](int64_t count, std::string_view what) {
    return count > 0 ? fmt::format(", {} {}", count, what) : std::string();
  };
  return fmt::format("{} prompts sampled{}{}", prompts_.asked(), also(prompts_.left_out(), "rows left out"),
                     also(prompts_.lossy(), "of rows with a warning about their text"));
}

void GrpoBatches::add_metrics(Json::Object& values, reports::TensorBoardWriter::Scalars& scalars) const {
  const int64_t bytes = setup_.phases->update_bytes();
  values.emplace_back("update_peak_memory_bytes", bytes);
  scalars.emplace_back("train/update_peak_memory_bytes", static_cast<double>(bytes));
  if (scorer_.critic() != nullptr) critic_report_.write(values, scalars);
  if (update_ != 1) return;  // once for each rollout
  report_.write(sampler_.reward_names(), "", "train/", values, scalars);
}

std::optional<BatchSource::Judged> GrpoBatches::evaluate() {
  const RolloutReport report = sampler_.ask_held_out(held_out_);
  Judged judged{report.answers.mean_reward(),
                fmt::format("reward {:.4f} of {:.0f} held-out prompts", report.answers.mean_reward(),
                            report.answers.answers),
                {},
                {}};
  report.write(sampler_.reward_names(), "eval_", "eval/", judged.values, judged.scalars);
  return judged;
}

}  // namespace temper::recipes
