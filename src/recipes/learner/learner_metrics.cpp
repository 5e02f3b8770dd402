// A learner's numbers: of its steps and its evaluations, in metrics.jsonl and TensorBoard.
#include <cmath>

#include "base/log.h"
#include "base/text.h"
#include "collectives/at_root.h"
#include "recipes/learner/learner.h"

namespace temper::recipes {
namespace {

// The loss of each source that had a target, where there are several sources.
void add_sources(const data::Mixture& mixture, const std::vector<training::SourceLoss>& losses,
                 std::string_view key, std::string_view tag, Json::Object& values,
                 reports::TensorBoardWriter::Scalars& scalars) {
  if (mixture.members().size() < 2) return;
  Json::Object by_source;
  for (size_t i = 0; i < losses.size(); ++i) {
    if (losses[i].target_tokens == 0) continue;
    const std::string& name = mixture.members()[i].name;
    by_source.emplace_back(name, losses[i].mean());
    scalars.emplace_back(fmt::format("{}{}", tag, name), losses[i].mean());
  }
  values.emplace_back(key, std::move(by_source));
}

void add_preference(const std::optional<training::PreferenceResult>& found, std::string_view key,
                    std::string_view tag, Json::Object& values,
                    reports::TensorBoardWriter::Scalars& scalars) {
  if (!found) return;
  const auto add = [&](std::string_view name, double value) {
    values.emplace_back(fmt::format("{}{}", key, name), value);
    scalars.emplace_back(fmt::format("{}{}", tag, name), value);
  };
  if (found->chosen > 0) add("reward_chosen", found->chosen_reward);
  if (found->rejected > 0) add("reward_rejected", found->rejected_reward);
  if (found->chosen > 0 && found->rejected > 0) add("reward_margin", found->margin());
  if (found->pairs > 0) add("reward_accuracy", found->accuracy());
  if (found->chosen > 0) add("logp_chosen", found->chosen_logp);
  if (found->rejected > 0) add("logp_rejected", found->rejected_logp);
  if (found->pairs == 0) add("kl", found->kl);
}

void add_policy(const std::optional<training::PolicyResult>& found, Json::Object& values,
                reports::TensorBoardWriter::Scalars& scalars) {
  if (!found) return;
  const losses::PolicySums& sums = found->sums;
  const auto tokens = static_cast<double>(std::max<int64_t>(1, sums.tokens));
  const std::initializer_list<std::pair<std::string_view, double>> all{
      {"kl", sums.kl / tokens},
      {"entropy", found->entropy / tokens},
      {"ratio", sums.ratio / tokens},
      {"clipped_low", static_cast<double>(sums.clipped_low) / tokens},
      {"clipped_high", static_cast<double>(sums.clipped_high) / tokens},
      {"dual_clipped", static_cast<double>(sums.dual_clipped) / tokens},
      {"corrected", static_cast<double>(sums.corrected) / tokens},
      {"log_prob_gap", sums.log_prob_gap / tokens},
      {"log_prob_gap_largest", sums.largest_gap}};
  for (const auto& [name, value] : all) {
    values.emplace_back(name, value);
    scalars.emplace_back(fmt::format("train/{}", name), value);
  }
}

// "student_logits_mean" and the like; nothing where nobody watched them.
void add_logits(const losses::LogitStatistics& found, std::string_view name, std::string_view key,
                std::string_view tag, Json::Object& values, reports::TensorBoardWriter::Scalars& scalars) {
  if (found.empty()) return;
  const std::initializer_list<std::pair<std::string_view, double>> all{
      {"mean", found.mean()}, {"deviation", found.deviation()}, {"min", found.least}, {"max", found.largest}};
  for (const auto& [what, value] : all) {
    values.emplace_back(fmt::format("{}{}_{}", key, name, what), value);
    scalars.emplace_back(fmt::format("{}{}_{}", tag, name, what), value);
  }
  values.emplace_back(fmt::format("{}{}_shape", key, name), Json::Array{found.tokens, found.vocabulary});
}

void add_distillation(const std::optional<training::DistillationResult>& found, std::string_view key,
                      std::string_view tag, Json::Object& values,
                      reports::TensorBoardWriter::Scalars& scalars) {
  if (!found) return;
  const std::initializer_list<std::pair<std::string_view, double>> all{
      {"divergence", found->divergence},
      {"cross_entropy", found->cross_entropy},
      {"teacher_entropy", found->teacher_entropy},
      {"top1_agreement", found->agreement}};
  for (const auto& [name, value] : all) {
    values.emplace_back(fmt::format("{}{}", key, name), value);
    scalars.emplace_back(fmt::format("{}{}", tag, name), value);
  }
  add_logits(found->student_logits, "student_logits", key, tag, values, scalars);
  add_logits(found->teacher_logits, "teacher_logits", key, tag, values, scalars);
}

}  // namespace

void Learner::write_metrics(const collectives::Root& root, const Report& report, double peak_flops) {
  const training::StepResult& result = report.result;
  const double speed = static_cast<double>(result.tokens) / report.seconds;
  const double fraction =
      peak_flops > 0 ? result.flops / report.seconds / (peak_flops * inputs_.ranks().size()) : 0.0;
  Json::Object values{{"loss", result.loss},
                      {"epoch", report.epoch},
                      {"lr", report.lr},
                      {"grad_norm", result.grad_norm},
                      {"tokens", state_.tokens},
                      {"target_tokens", result.target_tokens},
                      {"seconds", report.seconds},
                      {"data_wait_seconds", report.data_wait},
                      {"tokens_per_second", speed},
                      {"mfu", fraction}};
  reports::TensorBoardWriter::Scalars scalars{{"train/loss", result.loss},
                                              {"train/lr", report.lr},
                                              {"train/grad_norm", result.grad_norm},
                                              {"train/data_wait_seconds", report.data_wait},
                                              {"train/tokens_per_second", speed}};
  if (report.update_seconds) {
    const double update_speed = static_cast<double>(result.tokens) / *report.update_seconds;
    values.emplace_back("update_seconds", *report.update_seconds);
    values.emplace_back("update_tokens_per_second", update_speed);
    scalars.emplace_back("train/update_seconds", *report.update_seconds);
    scalars.emplace_back("train/update_tokens_per_second", update_speed);
  }
  if (inputs_.config.train.z_loss > 0) {
    values.emplace_back("z_loss", result.z_loss);
    scalars.emplace_back("train/z_loss", result.z_loss);
  }
  add_preference(result.preference, "", "train/", values, scalars);
  add_routers(result, balance_factor_, values, scalars);
  for (const std::string& warning : idle_experts_.after(result.routers)) log_warning(warning);
  if (inputs_.recipe().rollouts == nullptr)  // whose losses are around 0, and which warn of equal rewards
    for (const std::string& warning : loss_watch_.after(report.step, result.loss, result.grad_norm))
      log_warning(warning);
  add_policy(result.policy, values, scalars);
  add_distillation(result.distillation, "", "train/", values, scalars);
  values.insert(values.end(), report.values.begin(), report.values.end());
  scalars.insert(scalars.end(), report.scalars.begin(), report.scalars.end());
  add_sources(inputs_.data.train, result.sources, "loss_by_source", "train/loss/", values, scalars);
  metrics_.get(root).write(report.step, values);
  events_.get(root).write(report.step, scalars);
}

void Learner::note(const Json::Object& values, const reports::TensorBoardWriter::Scalars& scalars) {
  inputs_.setup.kept_errors->at_root([&](const collectives::Root& root) {
    if (!values.empty()) metrics_.get(root).write(state_.step, values);
    events_.get(root).write(state_.step, scalars);
  });
}

void Learner::evaluate() {
  owes_evaluation_ = false;
  if (!inputs_.data.eval) return;
  if (const auto judged = batches_->evaluate()) {
    note(judged->values, judged->scalars);
    return keep_if_best(-judged->value, judged->text);
  }
  const training::EvalResult result =
      objective_ ? objective_->evaluate(eval_rows_, adapter_.get(), inputs_.data_ranks())
                 : training::evaluate(inputs_.setup.model->decoder, adapter_.get(), eval_rows_,
                                      inputs_.config.train.micro_batch_tokens, inputs_.data_ranks());
  Json::Object values{{"eval_loss", result.loss}, {"eval_target_tokens", result.target_tokens}};
  reports::TensorBoardWriter::Scalars scalars{{"eval/loss", result.loss}};
  add_preference(result.preference, "eval_", "eval/", values, scalars);
  add_distillation(result.distillation, "eval_", "eval/", values, scalars);
  add_sources(*inputs_.data.eval, result.sources, "eval_loss_by_source", "eval/loss/", values, scalars);
  note(values, scalars);
  keep_if_best(result.loss, objective_ ? fmt::format("eval loss {:.4f}", result.loss)
                                       : fmt::format("eval loss {:.4f} (perplexity {:.4g})", result.loss,
                                                     std::exp(result.loss)));
}

void Learner::keep_if_best(double loss, const std::string& what) {
  const bool better = state_.best_step < 0 || loss < state_.best_loss;
  inputs_.log(fmt::format("step {}: {}{}", state_.step, what, better ? ", the best so far" : ""));
  if (!better) return;
  state_.best_loss = loss;
  state_.best_step = state_.step;
  with_whole([&](const collectives::Root&, const Whole& whole) { save_result(inputs_.files.best(), whole); });
}

}  // namespace temper::recipes
