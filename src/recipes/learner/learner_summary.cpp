#include "recipes/learner/learner_summary.h"

#include <algorithm>
#include <cmath>

#include "base/date.h"
#include "base/parts/build.h"
#include "base/text.h"

namespace temper::recipes {
namespace {

Json known(double value) { return value < 0 ? Json() : Json(with_six_digits(value)); }
Json known(const std::string& value) { return value.empty() ? Json() : Json(value); }

}  // namespace

Json LearnerSummary::json(const RunCurves& curves) const {
  const bool has_loss = inputs.recipe().rollouts == nullptr && progress.best_step >= 0;  // otherwise a reward
  const double seconds = progress.train_seconds;
  Json::Object values{{"steps", progress.step},
                      {"loss", with_six_digits(progress.last_loss)},
                      {"eval_loss", has_loss ? Json(with_six_digits(progress.best_loss)) : Json()},
                      {"best_step", progress.best_step < 0 ? Json() : Json(progress.best_step)},
                      {"exact_match_before", known(progress.accuracy_before)},
                      {"exact_match_after", known(ending.accuracy_after)},
                      {"started", known(progress.started)},
                      {"finished", utc_now()},
                      {"train_seconds", with_six_digits(seconds)},
                      {"tokens", progress.tokens},
                      {"tokens_per_second",
                       with_six_digits(seconds > 0 ? static_cast<double>(progress.tokens) / seconds : 0.0)},
                      {"data", batches.counts()},
                      {"data_wait_seconds", with_six_digits(batches.seconds_waited())},
                      {"device", to_string(inputs.setup.facts.device)},
                      {"device_name", inputs.setup.facts.name},
                      {"peak_memory_bytes", inputs.setup.peak_memory()},
                      {"version", version()},
                      {"commit", known(commit())}};
  if (has_perplexity && has_loss)
    values.emplace_back("eval_perplexity", with_six_digits(std::exp(progress.best_loss)));
  for (const char* const name : {"reward", "eval_reward"})
    if (Json span = curves.span_of(name); !span.is_null()) values.emplace_back(name, std::move(span));
  if (!ending.reason.empty()) values.emplace_back("stopped", ending.reason);
  if (!ending.diverged) values.emplace_back(inputs.is_adapter() ? "adapter" : "model", inputs.result());
  return values;
}

void LearnerSummary::write() const {
  const RunCurves curves(inputs.files.metrics());
  curves.draw(inputs.files.curve(), file_name(inputs.files.folder));
  write_file(inputs.files.summary(), json(curves).dump(2) + "\n");
}

void LearnerSummary::log_answers(const std::vector<Answer>& answers) const {
  for (size_t i = 0; i < std::min<size_t>(answers.size(), 3); ++i)
    inputs.log(fmt::format("  question: {}\n  answer:   {}{}", answers[i].question, answers[i].found,
                           answers[i].correct() ? "" : fmt::format("   (expected {})", answers[i].expected)));
}

void LearnerSummary::log_ending(int64_t saved_step) const {
  if (ending.diverged)
    return inputs.log(
        fmt::format("diverged in step {}; {}", progress.step,
                    saved_step > 0 ? fmt::format("step {} is saved in {}", saved_step, inputs.files.states())
                                   : "none before it was saved"));
  inputs.log(fmt::format("{} {} steps in {}, loss {:.4f}: {}{}",
                         ending.was_finished ? "this run is finished: it trained" : "trained", progress.step,
                         format_duration(progress.train_seconds), progress.last_loss, inputs.result(),
                         ending.was_finished
                             ? ". For more, set train.steps or train.epochs higher; for a new run, "
                               "choose another output"
                             : ""));
  // The result is what the last update made.
  if (progress.best_step < 0 || progress.best_step == progress.step) return;
  const bool rewards = inputs.recipe().rollouts != nullptr;
  inputs.log(fmt::format("step {} had the best evaluation ({} {:.4f}): that {} is in {}", progress.best_step,
                         rewards ? "reward" : "loss", rewards ? -progress.best_loss : progress.best_loss,
                         inputs.is_adapter() ? "adapter" : "model", inputs.files.best()));
}

}  // namespace temper::recipes
