#include "recipes/learner/learner.h"

#include <utility>

#include "base/date.h"
#include "base/log.h"
#include "base/text.h"
#include "recipes/learner/learner_folder.h"
#include "recipes/parts/critic.h"
#include "recipes/parts/loaded_batches.h"
#include "recipes/parts/rollout_memory.h"
#include "recipes/setup/quantizer_state.h"
#include "recipes/setup/training_stop_token.h"

namespace temper::recipes {

Learner::Learner(const RunSetup& setup, RunConfig config, DataSets data)
    : inputs_(setup, std::move(config), std::move(data)),
      schedule_(inputs_),
      metrics_(inputs_),
      checkpoints_(inputs_),
      update_(inputs_) {}

void Learner::build_to_measure() {
  const Recipe& recipe = inputs_.recipe();
  trained_ = std::make_unique<TrainedModel>(inputs_,
                                            recipe.measured != nullptr ? recipe.measured : recipe.objective);
}

void Learner::start() {
  open_rows();
  const bool resumed = restore();
  const RunSetup& setup = inputs_.setup;
  if (!resumed) progress_.started = utc_now();
  if (!resumed && !is_adapter() && !read_calibration(setup, files().calibration()))
    calibrate_quantizers(
        setup.model->decoder, config(),
        [&] {
          return rows_to_calibrate({{config(), data()}}, config().quantize.calibration_rows);
        },
        inputs_.ranks(), setup.groups->data());
  metrics_.open(progress_, resumed);
  if (config().eval.exact_match > 0 && progress_.accuracy_before < 0)
    progress_.accuracy_before = answer("before");
  ending_.was_finished = is_done() && !has_pending_evaluation();
  if (ending_.was_finished) ending_.accuracy_after = held_out_->known_accuracy();
  schedule_.warn_of_keys_without_effect();
}

void Learner::open_rows() {
  const Recipe& recipe = inputs_.recipe();
  std::optional<RolloutSettings> rollouts;
  if (recipe.rollouts != nullptr) rollouts = recipe.rollouts(config());
  const std::optional<int32_t> ending =
      training_stop_token(data().train, inputs_.setup.text, rollouts ? &*rollouts : nullptr);
  held_out_.emplace(inputs_, *trained_, ending);
  results_.emplace(inputs_, *trained_, ending);
  if (const auto wish = recipe.critic(config())) schedule_.hold(wish->warmup_updates);
  if (recipe.batches != nullptr) return rows_.open(recipe.batches(inputs_.for_batches(trained_->adapter())));
  rows_.open(std::make_unique<LoadedBatches>(data().train, loader_options(config()), inputs_.ranks(),
                                             inputs_.data_ranks()));
  if (data().eval) held_out_->read();
}

bool Learner::restore() {
  const std::optional<Json> state = checkpoints_.restore(*trained_, critic(), schedule_);
  if (!state) return false;
  progress_ = LearnerProgress::of(*state);
  rows_.source().restore(state->at("data"), state->find("stopped") != nullptr);
  log_info(fmt::format("resuming {} after step {}", files().folder, step()));
  LearnerFolder(inputs_).warn_of_program(*state);
  if (!is_done()) schedule_.warn_of_jump(step(), *state);
  return true;
}

void Learner::read_batch() {
  update_.start_clock();
  rows_.read(trained_->has_objective() && inputs_.is_root(),
             [&](const std::vector<data::PackedRow>& rows) { trained_->check(rows); });
}

void Learner::begun(training::PendingStep pending) {
  UpdateReport known{.total_steps = total_steps(),
                     .lr = schedule_.lr(step()),
                     .data_wait = rows_.seconds_waited(),
                     .epoch = rows_.epoch(),
                     .values = {}};
  known.step = ++progress_.step;
  rows_.source().add_metrics(known.values, known.scalars);
  update_.begin(std::move(pending), std::move(known));
}

std::optional<UpdateReport> Learner::report(double peak_flops) {
  std::optional<UpdateReport> report = update_.wait();
  if (!report) return report;
  progress_.add(*report);
  metrics_.write(*report, peak_flops);
  return report;
}

double Learner::answer(const char* when) {
  const double accuracy = held_out_->answer(when);
  metrics_.note(step(), {}, {{"eval/exact_match", accuracy}});
  return accuracy;
}

void Learner::evaluate() {
  progress_.pending_evaluation = false;
  if (!data().eval) return;
  const BatchSource::Judged judged = held_out_->evaluate(rows_.source());
  metrics_.note(step(), judged.values, judged.scalars);
  const bool is_best = progress_.keep_if_best(-judged.value);
  inputs_.log(fmt::format("step {}: {}{}", step(), judged.text, is_best ? ", the best so far" : ""));
  if (is_best) results_->save_best();
}

Json Learner::state_to_save() const {
  Json::Object state = progress_.to_json();
  state.emplace_back("next_lr", schedule_.lr(step()));
  state.emplace_back("data", rows_.position());
  state.emplace_back("origin", inputs_.setup.origin.meaning);
  if (!ending_.reason.empty()) state.emplace_back("stopped", ending_.reason);
  if (has_pending_evaluation()) state.emplace_back("owes_evaluation", true);
  if (is_adapter()) state.emplace_back("base", inputs_.setup.origin.base);
  return state;
}

void Learner::prepare_save(bool again, bool copy) {
  if (!is_unsaved() && !again) return;
  checkpoints_.prepare(progress_, inputs_.is_root() ? state_to_save() : Json(), *trained_, critic(), copy);
}

void Learner::finish() {
  rows_.source().end();
  if (ending_.reason.empty() && config().eval.exact_match > 0 && ending_.accuracy_after < 0)
    ending_.accuracy_after = answer("after");
  trained_->with_whole([&](const collectives::Root& root, const TrainedModel::Whole& whole) {
    if (!ending_.diverged) results_->save(inputs_.result(), whole);
    if (ending_.was_finished)
      checkpoints_.prune();  // where the process that finished was killed before it did
    metrics_.close(root);
    const LearnerSummary summary{inputs_, progress_, ending_, rows_.source(), !trained_->has_objective()};
    summary.write();
    summary.log_answers(held_out_->answers());
    inputs_.log("data: " + rows_.source().describe_counts());
    if (trained_->trainer() != nullptr && inputs_.setup.facts.device.type != DeviceType::kCpu)
      inputs_.log(training::describe(trained_->trainer()->graphs()));
    summary.log_ending(checkpoints_.saved_step());
  });
  if (critic() != nullptr && !ending_.diverged) results_->save_critic(*critic());
}

void Learner::stop(const std::string& reason, bool by_data) {
  update_.drop();
  ending_.stopped = true;
  ending_.diverged = !by_data;
  ending_.reason = reason;
}

}  // namespace temper::recipes
