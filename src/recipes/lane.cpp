// A lane's training: batches, steps, reports, evaluation.
#include "recipes/lane.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "base/threads.h"
#include "base/trace.h"
#include "models/adapter.h"
#include "recipes/adapter_config.h"

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

}  // namespace

Lane::Lane(const Session& session, RunConfig config)
    : session_(&session),
      config_(std::move(config)),
      files_{config_.output},
      data_(DataSets::load(config_, session.text)) {
  if (config_.eval.exact_match > 0 && !data_.eval)
    fail("[eval.exact_match] is set, but {} gives rows to ask from",
         is_adapter()
             ? fmt::format("neither adapters.{}.eval nor data.eval_fraction (data.eval is of adapters that "
                           "have no train)",
                           name())
             : "neither data.eval nor data.eval_fraction");
}

// Estimated once: that reads rows.
int64_t Lane::total_steps() const {
  if (config_.train.steps > 0) return config_.train.steps;
  if (!estimated_steps_) {
    const double per_epoch = data::estimate_steps_per_epoch(data_.train, loader_options(config_));
    estimated_steps_ = std::max<int64_t>(1, std::llround(per_epoch * config_.train.epochs));
  }
  return *estimated_steps_;
}

double Lane::lr() const {
  const TrainConfig& train = config_.train;
  return training::Schedule{train.schedule.type, train.optimizer.lr, train.schedule.warmup_steps,
                            total_steps(), train.schedule.final_fraction}
      .at(state_.step);
}

void Lane::warn_of_warmup() const {
  const int64_t warmup = config_.train.schedule.warmup_steps;
  if (warmup <= total_steps()) return;
  log_warning(fmt::format(
      "[{}] is {}, but the run has {} updates: the learning rate never reaches its peak; set fewer",
      is_adapter() ? fmt::format("adapters.{}.warmup_steps", name()) : "train.schedule.warmup_steps", warmup,
      total_steps()));
}

void Lane::log(const std::string& message) const {
  log_info(is_adapter() ? fmt::format("[{}] {}", name(), message) : message);
}

void Lane::make_learner() {
  make_adapter();
  objective_ = recipe_of(config_).objective({*session_, config_, data_, files_});
  make_trainer();
}

void Lane::make_dry_learner() {
  make_adapter();
  objective_ = recipe_of(config_).measured({*session_, config_, data_, files_});
  make_trainer();
}

void Lane::make_adapter() {
  if (!is_adapter()) return;
  const models::Model& model = *session_->model;
  const AdapterConfig& given = config_.adapters.front();
  const AdapterChoice choice = choose_adapter(given, model.decoder.parameters().table());
  adapter_ = given.from.empty()
                 ? models::new_adapter(model, choice.lora, static_cast<uint64_t>(config_.train.seed), "")
                 : models::load_adapter(model, source_of(given));
  adapter_->set_dropout(choice.lora.dropout);
  log(fmt::format("adapter: {} modules, {:.2f} M parameters", adapter_->plan().targets.size(),
                  static_cast<double>(adapter_->parameters().num_elements()) / 1e6));
}

void Lane::make_trainer() {
  models::Model& model = *session_->model;
  layers::ParameterStore& trained = adapter_ ? adapter_->parameters() : model.decoder.parameters();
  const OptimizerConfig& o = config_.train.optimizer;
  optimizer_ = std::make_unique<optimizers::AdamW>(
      trained, model.decoder.ops(),
      optimizers::AdamWOptions{o.betas[0], o.betas[1], o.eps, o.weight_decay, o.decay_all,
                               config_.train.format(), static_cast<uint64_t>(config_.train.seed)});
  if (!adapter_)
    trainer_ = std::make_unique<training::Trainer>(model.decoder, *optimizer_,
                                                   trainer_options(config_, data_.train.members().size()),
                                                   objective_, session_->ranks);
}

void Lane::start() {
  loader_ = std::make_unique<data::Loader>(data_.train, loader_options(config_));
  if (data_.eval) eval_rows_ = read_all(*data_.eval, config_);
  const bool resumed = restore();
  metrics_ = std::make_unique<reports::MetricsWriter>(files_.metrics(), resumed ? state_.step : -1);
  events_ = std::make_unique<reports::TensorBoardWriter>(files_.events(), state_.step + 1);
  if (config_.eval.exact_match > 0 && state_.accuracy_before < 0) ask("before", state_.accuracy_before);
  was_finished_ = is_done();
  warn_of_warmup();
}

void Lane::read_batch() {
  const trace::Span span("data");
  if (!begun_) last_report_ = seconds_now();
  const double waited = loader_->seconds_waited();
  const Json before = objective_ ? loader_->state() : Json();
  std::optional<data::Batch> batch = loader_->next();
  invariant(batch.has_value(), "an endless loader ended");
  std::swap(batch_, *batch);
  try {
    check_rows();
  } catch (const Error&) {
    std::swap(batch_, *batch);
    refused_at_ = before;
    throw;
  }
  data_wait_ = loader_->seconds_waited() - waited;
}

void Lane::check_rows() const {
  if (objective_) objective_->check(batch_.rows, session_->ranks);
}

training::PendingStep Lane::begin_alone() { return trainer_->begin(batch_.rows, lr()); }

training::AdapterShare Lane::share() const {
  return {adapter_.get(),
          optimizer_.get(),
          &batch_.rows,
          lr(),
          static_cast<uint64_t>(config_.train.seed),
          data_.train.members().size(),
          objective_.get()};
}

void Lane::begun(training::PendingStep pending) {
  const double rate = lr();
  begun_ = Begun{std::move(pending), ++state_.step, rate, data_wait_};
}

std::optional<Lane::Report> Lane::report(double peak_flops) {
  if (!begun_) return std::nullopt;
  Begun begun = std::move(*begun_);
  begun_.reset();
  Report report{begun.pending.wait(), begun.step, total_steps(), begun.lr, begun.data_wait};
  state_.tokens += report.result.tokens;
  state_.last_loss = report.result.loss;
  const double now = seconds_now();
  report.seconds = now - std::exchange(last_report_, now);
  state_.train_seconds += report.seconds;
  report.train_seconds = state_.train_seconds;
  write_metrics(report, peak_flops);
  return report;
}

void Lane::write_metrics(const Report& report, double peak_flops) {
  const training::StepResult& result = report.result;
  const double speed = static_cast<double>(result.tokens) / report.seconds;
  const double fraction = peak_flops > 0 ? result.flops / report.seconds / peak_flops : 0.0;
  Json::Object values{{"loss", result.loss},
                      {"lr", report.lr},
                      {"grad_norm", result.grad_norm},
                      {"tokens", state_.tokens},
                      {"target_tokens", result.target_tokens},
                      {"seconds", report.seconds},
                      {"data_wait_seconds", report.data_wait},
                      {"tokens_per_second", speed},
                      {"peak_fraction", fraction}};
  reports::TensorBoardWriter::Scalars scalars{{"train/loss", result.loss},
                                              {"train/lr", report.lr},
                                              {"train/grad_norm", result.grad_norm},
                                              {"train/data_wait_seconds", report.data_wait},
                                              {"train/tokens_per_second", speed}};
  if (config_.train.z_loss > 0) {
    values.emplace_back("z_loss", result.z_loss);
    scalars.emplace_back("train/z_loss", result.z_loss);
  }
  add_preference(result.preference, "", "train/", values, scalars);
  add_sources(data_.train, result.sources, "loss_by_source", "train/loss/", values, scalars);
  metrics_->write(report.step, values);
  events_->write(report.step, scalars);
}

void Lane::evaluate() {
  if (eval_rows_.empty()) return;
  const training::EvalResult result =
      objective_ ? objective_->evaluate(eval_rows_, adapter_.get(), session_->ranks)
                 : training::evaluate(session_->model->decoder, adapter_.get(), eval_rows_,
                                      config_.train.micro_batch_tokens, session_->ranks);
  Json::Object values{{"eval_loss", result.loss}, {"eval_target_tokens", result.target_tokens}};
  reports::TensorBoardWriter::Scalars scalars{{"eval/loss", result.loss}};
  add_preference(result.preference, "eval_", "eval/", values, scalars);
  add_sources(*data_.eval, result.sources, "eval_loss_by_source", "eval/loss/", values, scalars);
  metrics_->write(state_.step, values);
  events_->write(state_.step, scalars);
  const bool better = state_.best_step < 0 || result.loss < state_.best_loss;
  log(fmt::format("step {}: eval loss {:.4f}{}", state_.step, result.loss,
                  better ? ", the best so far" : ""));
  if (!better) return;
  state_.best_loss = result.loss;
  state_.best_step = state_.step;
  save_result(files_.best());
}

void Lane::ask(const char* when, double& result) {
  const double start = seconds_now();
  answers_ = answer_questions(*session_, config_, *data_.eval, adapter_.get());
  result = accuracy(answers_);
  log(fmt::format("exact match {} training: {:.1f} % of {} held-out questions ({})", when, 100 * result,
                  answers_.size(), format_duration(seconds_now() - start)));
}

void Lane::stop(const std::string& reason, bool by_data) {
  begun_.reset();
  stopped_ = true;
  diverged_ = !by_data;
  stop_reason_ = reason;
  if (diverged_ || state_.step == 0) return;
  prepare_save(true);  // the state says why the run ended
  commit_save();
}

}  // namespace temper::recipes
