// What a learner leaves at the end: the model or adapter, a summary, a curve, what is said.
#include <algorithm>

#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoints/placed_tensors.h"
#include "collectives/at_root.h"
#include "models/adapter.h"
#include "recipes/critic.h"
#include "recipes/learner.h"
#include "reports/plot.h"

namespace temper::recipes {

void Learner::save_result(const std::string& folder, const Whole& whole) const {
  if (adapter_)
    models::save_adapter(*adapter_, folder, config_.model.path, whole);
  else
    models::save_model(*setup_->model, folder, config_.model.path, whole);
  // What was learnt is of use with the template it was learnt with, and no other for rows with tools.
  if (config_.data.chat_template.empty()) return;
  write_file(join_path(folder, "chat_template.jinja"), setup_->text.chat->text);
  const std::string tool_use = join_path(folder, templates::kToolUseFile);
  if (!exists(tool_use)) return;
  remove_all(tool_use);
  log_info(
      fmt::format("[{}] the model's chat template for tools is left out, as all rows took that of "
                  "data.chat_template",
                  folder));
}

void Learner::with_whole(const std::function<void(const Whole&)>& use) const {
  checkpoints::with_whole(ranks(), trained().placed(), use);
}

void Learner::finish() {
  batches_->end();
  if (stop_reason_.empty() && config_.eval.exact_match > 0) ask("after", accuracy_after_);
  with_whole([&](const Whole& whole) { write_result(whole); });
  if (!diverged_) save_critic();
}

void Learner::save_critic() {
  const Critic* const critic = batches_->critic();
  if (critic == nullptr) return;
  const std::string base = recipe_of(config_).critic(config_)->folder;
  checkpoints::with_whole(ranks(), critic->trained().placed(), [&](const Whole& whole) {
    if (critic->adapter() != nullptr)
      models::save_adapter(*critic->adapter(), files_.critic(), base, whole);
    else
      models::save_model(critic->model(), files_.critic(), base, whole);
  });
}

void Learner::write_result(const Whole& whole) {
  const std::string result = is_adapter() ? files_.adapter() : files_.model();
  if (!diverged_) save_result(result, whole);
  if (was_finished_) prune();  // where the process that finished was killed before it did
  metrics_->close();
  events_->close();
  draw_curve();
  write_file(files_.summary(), summary().dump(2) + "\n");
  for (size_t i = 0; i < std::min<size_t>(answers_.size(), 3); ++i)
    log(fmt::format("  question: {}\n  answer:   {}{}", answers_[i].question, answers_[i].found,
                    answers_[i].correct() ? "" : fmt::format("   (expected {})", answers_[i].expected)));
  log("data: " + batches_->describe_counts());
  if (trainer_ && setup_->facts.device.type != DeviceType::kCpu) log(training::describe(trainer_->graphs()));
  log(diverged_
          ? fmt::format("diverged in step {}; {}", state_.step,
                        saved_step_ > 0 ? fmt::format("step {} is saved in {}", saved_step_, files_.states())
                                        : "none before it was saved")
          : fmt::format("{} {} steps in {}: {}{}",
                        was_finished_ ? "this run is finished: it trained" : "trained", state_.step,
                        format_duration(state_.train_seconds), result,
                        was_finished_ ? ". For more, set train.steps or train.epochs higher; for a new run, "
                                        "choose another output"
                                      : ""));
}

Json Learner::summary() const {
  const auto known = [](double value) { return value < 0 ? Json() : Json(value); };
  Json::Object values{
      {"steps", state_.step},
      {"loss", state_.last_loss},
      {"eval_loss", known(state_.best_loss)},
      {"best_step", state_.best_step < 0 ? Json() : Json(state_.best_step)},
      {"accuracy_before", known(state_.accuracy_before)},
      {"accuracy_after", known(accuracy_after_)},
      {"train_seconds", state_.train_seconds},
      {"tokens", state_.tokens},
      {"tokens_per_second",
       state_.train_seconds > 0 ? static_cast<double>(state_.tokens) / state_.train_seconds : 0.0},
      {"data", batches_->counts()},
      {"data_wait_seconds", batches_->seconds_waited()},
      {"device", to_string(setup_->facts.device)},
      {"device_name", setup_->facts.name},
      {"peak_memory_bytes", setup_->peak_memory()}};
  if (!stop_reason_.empty()) values.emplace_back("stopped", stop_reason_);
  if (!diverged_)
    values.emplace_back(is_adapter() ? "adapter" : "model", is_adapter() ? files_.adapter() : files_.model());
  return values;
}

void Learner::draw_curve() const {
  reports::LossSeries train{"training loss", {}, reports::LossSeries::Style::kTrain};
  reports::LossSeries eval{"evaluation loss", {}, reports::LossSeries::Style::kEval};
  const std::string text = read_file(files_.metrics());
  for (size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const Json line = Json::parse(std::string_view(text).substr(begin, end - begin), files_.metrics());
    const double step = line.at("step").as_double();
    if (const Json* loss = line.find("loss"); loss != nullptr && loss->is_number())
      train.points.push_back({step, loss->as_double()});
    if (const Json* loss = line.find("eval_loss"); loss != nullptr && loss->is_number())
      eval.points.push_back({step, loss->as_double()});
  }
  std::vector<reports::LossSeries> series{train};
  if (!eval.points.empty()) series.push_back(eval);
  reports::write_loss_curve(files_.curve(), file_name(files_.folder), series);
}

}  // namespace temper::recipes
