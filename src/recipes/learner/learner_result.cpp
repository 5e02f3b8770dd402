// What a learner leaves at the end: the model or adapter, a summary, a curve, what is said.
#include <algorithm>
#include <cmath>

#include "base/build.h"
#include "base/date.h"
#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoints/states/placed_tensors.h"
#include "checkpoints/stop_tokens.h"
#include "collectives/at_root.h"
#include "models/adapter.h"
#include "recipes/learner/learner.h"
#include "recipes/parts/critic.h"

namespace temper::recipes {

void Learner::save_result(const std::string& folder, const Whole& whole) const {
  if (adapter_)
    models::save_adapter(*adapter_, folder, inputs_.config.model.path, whole);
  else
    models::save_model(*inputs_.setup.model, folder, inputs_.config.model.path, whole);
  if (ending_) {
    std::vector<int32_t> stops = inputs_.setup.text.generation.stop_ids;
    stops.push_back(*ending_);
    checkpoints::add_stop_tokens(folder, stops);
  }
  // What was learnt is of use with the template it was learnt with, and no other for rows with tools.
  if (inputs_.config.data.chat_template.empty()) return;
  write_file(join_path(folder, "chat_template.jinja"), inputs_.setup.text.chat->text);
  const std::string tool_use = join_path(folder, templates::kToolUseFile);
  if (!exists(tool_use)) return;
  remove_all(tool_use);
  log_info(
      fmt::format("[{}] the model's chat template for tools is left out, as all rows took that of "
                  "data.chat_template",
                  folder));
}

void Learner::with_whole(const std::function<void(const collectives::Root&, const Whole&)>& use) const {
  checkpoints::with_whole(inputs_.ranks(), trained().placed(), use);
}

void Learner::finish() {
  batches_->end();
  if (stop_reason_.empty() && inputs_.config.eval.exact_match > 0 && accuracy_after_ < 0)
    ask("after", accuracy_after_);
  with_whole([&](const collectives::Root& root, const Whole& whole) { write_result(root, whole); });
  if (!diverged_) save_critic();
}

void Learner::save_critic() {
  const Critic* const critic = batches_->critic();
  if (critic == nullptr) return;
  const std::string base = inputs_.recipe().critic(inputs_.config)->folder;
  checkpoints::with_whole(inputs_.ranks(), critic->trained().placed(),
                          [&](const collectives::Root&, const Whole& whole) {
                            if (critic->adapter() != nullptr)
                              models::save_adapter(*critic->adapter(), inputs_.files.critic(), base, whole);
                            else
                              models::save_model(critic->model(), inputs_.files.critic(), base, whole);
                          });
}

void Learner::write_result(const collectives::Root& root, const Whole& whole) {
  const std::string result = inputs_.result();
  if (!diverged_) save_result(result, whole);
  if (was_finished_) prune();  // where the process that finished was killed before it did
  metrics_.close(root);
  const RunCurves curves(inputs_.files.metrics());
  curves.draw(inputs_.files.curve(), file_name(inputs_.files.folder));
  write_file(inputs_.files.summary(), summary(curves).dump(2) + "\n");
  for (size_t i = 0; i < std::min<size_t>(answers_.size(), 3); ++i)
    inputs_.log(
        fmt::format("  question: {}\n  answer:   {}{}", answers_[i].question, answers_[i].found,
                    answers_[i].correct() ? "" : fmt::format("   (expected {})", answers_[i].expected)));
  inputs_.log("data: " + batches_->describe_counts());
  if (trainer_ && inputs_.setup.facts.device.type != DeviceType::kCpu)
    inputs_.log(training::describe(trainer_->graphs()));
  inputs_.log(
      diverged_
          ? fmt::format("diverged in step {}; {}", progress_.step,
                        saved_step_ > 0
                            ? fmt::format("step {} is saved in {}", saved_step_, inputs_.files.states())
                            : "none before it was saved")
          : fmt::format("{} {} steps in {}, loss {:.4f}: {}{}",
                        was_finished_ ? "this run is finished: it trained" : "trained", progress_.step,
                        format_duration(progress_.train_seconds), progress_.last_loss, result,
                        was_finished_ ? ". For more, set train.steps or train.epochs higher; for a new run, "
                                        "choose another output"
                                      : ""));
  if (!diverged_) say_where_the_best_is();
}

// The result is what the last update made.
void Learner::say_where_the_best_is() const {
  if (progress_.best_step < 0 || progress_.best_step == progress_.step) return;
  const bool rewards = inputs_.recipe().rollouts != nullptr;
  inputs_.log(fmt::format("step {} had the best evaluation ({} {:.4f}): that {} is in {}",
                          progress_.best_step, rewards ? "reward" : "loss",
                          rewards ? -progress_.best_loss : progress_.best_loss,
                          is_adapter() ? "adapter" : "model", inputs_.files.best()));
}

Json Learner::summary(const RunCurves& curves) const {
  const auto known = [](double value) { return value < 0 ? Json() : Json(with_six_digits(value)); };
  const bool rewards = inputs_.recipe().rollouts != nullptr;
  const Json eval_loss =
      rewards || progress_.best_step < 0 ? Json() : Json(with_six_digits(progress_.best_loss));
  Json::Object values{{"steps", progress_.step},
                      {"loss", with_six_digits(progress_.last_loss)},
                      {"eval_loss", eval_loss},
                      {"best_step", progress_.best_step < 0 ? Json() : Json(progress_.best_step)},
                      {"exact_match_before", known(progress_.accuracy_before)},
                      {"exact_match_after", known(accuracy_after_)},
                      {"started", progress_.started.empty() ? Json() : Json(progress_.started)},
                      {"finished", utc_now()},
                      {"train_seconds", with_six_digits(progress_.train_seconds)},
                      {"tokens", progress_.tokens},
                      {"tokens_per_second",
                       with_six_digits(progress_.train_seconds > 0
                                           ? static_cast<double>(progress_.tokens) / progress_.train_seconds
                                           : 0.0)},
                      {"data", batches_->counts()},
                      {"data_wait_seconds", with_six_digits(batches_->seconds_waited())},
                      {"device", to_string(inputs_.setup.facts.device)},
                      {"device_name", inputs_.setup.facts.name},
                      {"peak_memory_bytes", inputs_.setup.peak_memory()},
                      {"version", version()},
                      {"commit", commit().empty() ? Json() : Json(commit())}};
  if (!objective_ && eval_loss.is_number())
    values.emplace_back("eval_perplexity", with_six_digits(std::exp(progress_.best_loss)));
  for (const char* const name : {"reward", "eval_reward"})
    if (Json span = curves.span_of(name); !span.is_null()) values.emplace_back(name, std::move(span));
  if (!stop_reason_.empty()) values.emplace_back("stopped", stop_reason_);
  if (!diverged_) values.emplace_back(is_adapter() ? "adapter" : "model", inputs_.result());
  return values;
}

}  // namespace temper::recipes
