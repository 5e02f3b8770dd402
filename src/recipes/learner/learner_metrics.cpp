#include "recipes/learner/learner_metrics.h"

#include <cmath>

#include "base/log.h"
#include "base/text.h"

namespace temper::recipes {
namespace {

// Values that have the same names in metrics.jsonl and in TensorBoard, behind a prefix of each.
struct Numbers {
  std::string_view key, tag;  // the prefixes
  Json::Object values = {};
  reports::TensorBoardWriter::Scalars scalars = {};

  void add(std::string_view name, double value) {
    values.emplace_back(fmt::format("{}{}", key, name), value);
    scalars.emplace_back(fmt::format("{}{}", tag, name), value);
  }
  void add_all(std::initializer_list<std::pair<std::string_view, double>> all) {
    for (const auto& [name, value] : all) add(name, value);
  }
};

// The loss of each source that had a target, where there are several sources.
void add_sources(const data::Mixture& mixture, const std::vector<training::SourceLoss>& losses, Numbers& to) {
  if (mixture.members().size() < 2) return;
  Json::Object by_source;
  for (size_t i = 0; i < losses.size(); ++i) {
    if (losses[i].target_tokens == 0) continue;
    const std::string& name = mixture.members()[i].name;
    by_source.emplace_back(name, losses[i].mean());
    to.scalars.emplace_back(fmt::format("{}loss/{}", to.tag, name), losses[i].mean());
  }
  to.values.emplace_back(fmt::format("{}loss_by_source", to.key), std::move(by_source));
}

void add_preference(const std::optional<training::PreferenceResult>& found, Numbers& to) {
  if (!found) return;
  if (found->chosen > 0) to.add("reward_chosen", found->chosen_reward);
  if (found->rejected > 0) to.add("reward_rejected", found->rejected_reward);
  if (found->chosen > 0 && found->rejected > 0) to.add("reward_margin", found->margin());
  if (found->pairs > 0) to.add("reward_accuracy", found->accuracy());
  if (found->chosen > 0) to.add("logp_chosen", found->chosen_logp);
  if (found->rejected > 0) to.add("logp_rejected", found->rejected_logp);
  if (found->pairs == 0) to.add("kl", found->kl);
}

void add_policy(const std::optional<training::PolicyResult>& found, Numbers& to) {
  if (!found) return;
  const losses::PolicySums& sums = found->sums;
  const auto tokens = static_cast<double>(std::max<int64_t>(1, sums.tokens));
  to.add_all({{"kl", sums.kl / tokens},
              {"entropy", found->entropy / tokens},
              {"ratio", sums.ratio / tokens},
              {"clipped_low", static_cast<double>(sums.clipped_low) / tokens},
              {"clipped_high", static_cast<double>(sums.clipped_high) / tokens},
              {"dual_clipped", static_cast<double>(sums.dual_clipped) / tokens},
              {"corrected", static_cast<double>(sums.corrected) / tokens},
              {"log_prob_gap", sums.log_prob_gap / tokens},
              {"log_prob_gap_largest", sums.largest_gap}});
}

// "student_logits_mean" and the like; nothing where they were not watched.
void add_logits(const losses::LogitStatistics& found, const std::string& name, Numbers& to) {
  if (found.empty()) return;
  to.add_all({{name + "_mean", found.mean()},
              {name + "_deviation", found.deviation()},
              {name + "_min", found.least},
              {name + "_max", found.largest}});
  to.values.emplace_back(fmt::format("{}{}_shape", to.key, name),
                         Json::Array{found.tokens, found.vocabulary});
}

void add_distillation(const std::optional<training::DistillationResult>& found, Numbers& to) {
  if (!found) return;
  to.add_all({{"divergence", found->divergence},
              {"cross_entropy", found->cross_entropy},
              {"teacher_entropy", found->teacher_entropy},
              {"top1_agreement", found->agreement}});
  add_logits(found->student_logits, "student_logits", to);
  add_logits(found->teacher_logits, "teacher_logits", to);
}

// What stages of a pipeline wait for each other.
void add_pipeline(const std::optional<training::PipelineResult>& found, Numbers& to) {
  if (found)
    to.add_all({{"pipeline_waiting", found->waiting_share()}, {"pipeline_bubble", found->planned_share()}});
}

Numbers speeds_of(const UpdateReport& report, double peak_flops) {
  const training::StepResult& result = report.result;
  const auto tokens = static_cast<double>(result.tokens);
  Numbers all{"", "train/"};
  all.add("loss", result.loss);
  all.values.emplace_back("epoch", report.epoch);
  all.add("lr", report.lr);
  all.add("grad_norm", result.grad_norm);
  all.values.emplace_back("tokens", report.tokens);
  all.values.emplace_back("target_tokens", result.target_tokens);
  all.values.emplace_back("seconds", report.seconds);
  all.add("data_wait_seconds", report.data_wait);
  all.add("tokens_per_second", tokens / report.seconds);
  all.values.emplace_back("mfu", peak_flops > 0 ? result.flops / report.seconds / peak_flops : 0.0);
  if (report.update_seconds)
    all.add_all({{"update_seconds", *report.update_seconds},
                 {"update_tokens_per_second", tokens / *report.update_seconds}});
  return all;
}

}  // namespace

void LearnerMetrics::open(const LearnerProgress& progress, bool resumed) {
  collectives::at_root(inputs_.ranks(), "opening metrics", [&](const collectives::Root& root) {
    metrics_.emplace(root, inputs_.files.metrics(), resumed ? progress.step : -1,
                     progress.pending_evaluation);
    events_.emplace(root, inputs_.files.events(), progress.step + 1);
  });
}

void LearnerMetrics::write(const UpdateReport& report, double peak_flops) {
  inputs_.setup.kept_errors->at_root([&](const collectives::Root& root) {
    const RunConfig& config = inputs_.config;
    const training::StepResult& result = report.result;
    Numbers all = speeds_of(report, peak_flops * inputs_.ranks().size());
    if (config.train.z_loss > 0) all.add("z_loss", result.z_loss);
    add_preference(result.preference, all);
    add_routers(result, config.train.router.balance_loss.value_or(inputs_.setup.architecture.balance_factor),
                all.values, all.scalars);
    warn(report);
    add_policy(result.policy, all);
    add_distillation(result.distillation, all);
    add_pipeline(result.pipeline, all);
    all.values.insert(all.values.end(), report.values.begin(), report.values.end());
    all.scalars.insert(all.scalars.end(), report.scalars.begin(), report.scalars.end());
    add_sources(inputs_.data.train, result.sources, all);
    metrics_.get(root).write(report.step, all.values);
    events_.get(root).write(report.step, all.scalars);
  });
}

void LearnerMetrics::warn(const UpdateReport& report) {
  const training::StepResult& result = report.result;
  for (const std::string& warning : idle_experts_.after(result.routers)) log_warning(warning);
  if (inputs_.recipe().rollouts != nullptr) return;  // losses are around 0, and equal rewards have a warning
  for (const std::string& warning : loss_watch_.after(report.step, result.loss, result.grad_norm))
    log_warning(warning);
}

void LearnerMetrics::note(int64_t step, const Json::Object& values,
                          const reports::TensorBoardWriter::Scalars& scalars) {
  inputs_.setup.kept_errors->at_root([&](const collectives::Root& root) {
    if (!values.empty()) metrics_.get(root).write(step, values);
    events_.get(root).write(step, scalars);
  });
}

void LearnerMetrics::sync() {
  inputs_.setup.kept_errors->at_root([&](const collectives::Root& root) { metrics_.get(root).sync(); });
}

void LearnerMetrics::close(const collectives::Root& root) {
  metrics_.get(root).close();
  events_.get(root).close();
}

BatchSource::Judged evaluation_by_loss(const training::EvalResult& result, const data::Mixture& rows,
                                       bool is_perplexity) {
  Numbers all{"eval_", "eval/"};
  all.add("loss", result.loss);
  all.values.emplace_back("eval_target_tokens", result.target_tokens);
  add_preference(result.preference, all);
  add_distillation(result.distillation, all);
  add_sources(rows, result.sources, all);
  const std::string perplexity = fmt::format(" (perplexity {:.4g})", std::exp(result.loss));
  return {-result.loss, fmt::format("eval loss {:.4f}{}", result.loss, is_perplexity ? perplexity : ""),
          std::move(all.values), std::move(all.scalars)};
}

}  // namespace temper::recipes
