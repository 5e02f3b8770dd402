#include "recipes/sft/sft.h"

#include <cmath>
#include <numeric>

#include "backends/peak.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "base/threads.h"
#include "data/inspect.h"
#include "recipes/sft/plan.h"

namespace temper::recipes {
namespace {

training::Schedule schedule_of(const TrainConfig& config, int64_t total_steps) {
  return {config.schedule.type, config.optimizer.lr, config.schedule.warmup_steps, total_steps,
          config.schedule.final_fraction};
}

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

void run_sft(const RunConfig& config, const std::string& resolved_yaml, const RunOptions& options) {
  SftRun(config, resolved_yaml, options).run();
}

}  // namespace

SftRun::SftRun(const RunConfig& config, const std::string& resolved_yaml, const RunOptions& options)
    : options_(options),
      resolved_yaml_(resolved_yaml),
      session_(config),
      files_{config.output},
      profile_(options.profile_steps, session_.facts, config.model.dtype, files_.trace()) {}

void SftRun::run() {
  const MemoryPlan plan = plan_memory(session_.config, session_.architecture, session_.facts);
  check_memory(session_.config, session_.architecture, session_.facts, pool(session_.facts.device).limit());
  if (options_.dry_run) return check();
  open_folder();
  const ops::Preferences preferred = preferred_kernels();
  session_.load_weights(preferred);
  store_kernels(preferred.kernels);
  loader_ = std::make_unique<data::Loader>(session_.data.train, loader_options(session_.config));
  if (session_.data.eval) eval_rows_ = read_all(*session_.data.eval, session_.config);
  const bool resumed = restore();
  log_info("data: " + data::describe_formats(session_.data.train));
  metrics_ = std::make_unique<reports::MetricsWriter>(files_.metrics(), resumed ? state_.step : -1);
  events_ = std::make_unique<reports::TensorBoardWriter>(files_.events(), state_.step + 1);
  if (session_.config.eval.exact_match > 0 && state_.accuracy_before < 0)
    ask("before", state_.accuracy_before);
  find_peak();
  train();
  finish();
  if (options_.explain_memory) log_info(memory_table(pool(session_.facts.device).usage(), &plan));
}

void SftRun::train() {
  const int64_t total = session_.total_steps();
  if (state_.step >= total)
    log_info(fmt::format("nothing to train: {} of {} steps are done", state_.step, total));
  const training::StopSignals signals;
  progress_ = std::make_unique<reports::Progress>();
  const auto due = [&](int64_t every) { return every > 0 && state_.step % every == 0; };
  while (state_.step < total) {
    profile_.before_step();
    train_one(total);
    const bool last = state_.step == total, stop = signals.requested();
    const bool evaluates = due(session_.config.eval.every_steps) || last;
    const bool saves = due(session_.config.checkpoint.every_steps) || last || stop;
    if (evaluates || saves) report_last();
    if (evaluates) evaluate();
    if (saves) save();
    if (stop && !last) {
      progress_->finish();
      throw Error(
          fmt::format(
              "stopped by a signal after step {}; everything is saved in {}: run the same command to go on",
              state_.step, files_.folder),
          ErrorKind::kInterrupted);
    }
  }
  profile_.finish();
  progress_->finish();
  progress_.reset();
}

// On a device a step is reported when the next one has been asked for, so that the device never waits for us.
void SftRun::train_one(int64_t total_steps) {
  if (!begun_) last_report_ = seconds_now();
  const double waited = loader_->seconds_waited();
  const std::optional<data::Batch> batch = next_batch();
  const double wait = loader_->seconds_waited() - waited;
  invariant(batch.has_value(), "an endless loader ended");
  const double lr = schedule_of(session_.config.train, total_steps).at(state_.step);
  training::PendingStep pending = session_.trainer->begin(batch->rows, lr);
  report_last();
  begun_ = Begun{std::move(pending), ++state_.step, total_steps, lr, wait};
  if (session_.facts.device.type == DeviceType::kCpu) report_last();
}

// A row that stops the run must not cost what was learnt before it.
std::optional<data::Batch> SftRun::next_batch() {
  const trace::Span span("data");
  try {
    return loader_->next();
  } catch (const Error& error) {
    report_last();
    if (state_.step == saved_step_) throw;
    save();
    throw Error(
        fmt::format("{}; the {} steps before it are saved in {}", error.what(), state_.step, files_.folder),
        error.kind());
  }
}

void SftRun::report_last() {
  if (!begun_) return;
  const training::StepResult result = begun_->pending.wait();
  state_.tokens += result.tokens;
  state_.last_loss = result.loss;
  const double now = seconds_now(), seconds = now - last_report_;
  last_report_ = now;
  state_.train_seconds += seconds;
  report(result, seconds);
  begun_.reset();
}

// Of the process, or of the device that trains.
int64_t SftRun::memory_in_use() const {
  if (session_.facts.device.type == DeviceType::kCpu) return current_resident_bytes();
  int64_t held = 0;
  for (const RegionUsage& region : pool(session_.facts.device).usage()) held += region.held;
  return held;
}

int64_t SftRun::peak_memory() const {
  const Device device = session_.facts.device;
  return device.type == DeviceType::kCpu ? peak_resident_bytes() : pool(device).peak_held();
}

void SftRun::find_peak() {
  const HardwareFacts& facts = session_.facts;
  peak_flops_ = backends::matmul_peak(facts, session_.config.model.dtype, num_threads());
  if (facts.device.type == DeviceType::kCpu) return;
  log_info(fmt::format(
      "device: {} on {}{}", facts.name, to_string(facts.device),
      peak_flops_ > 0
          ? fmt::format("; peak is the published {:.0f} TFLOP/s of dense bfloat16", peak_flops_ / 1e12)
          : std::string()));
}

void SftRun::report(const training::StepResult& result, double seconds) {
  const int64_t step = begun_->step, total_steps = begun_->total_steps;
  const double lr = begun_->lr;
  reports::StepReport line;
  line.step = step;
  line.total_steps = total_steps;
  line.loss = result.loss;
  line.lr = lr;
  line.grad_norm = result.grad_norm;
  line.tokens_per_second = static_cast<double>(result.tokens) / seconds;
  if (peak_flops_ > 0) line.peak_fraction = result.flops / seconds / peak_flops_;
  line.memory_bytes = memory_in_use();
  line.seconds_left =
      state_.train_seconds / static_cast<double>(step) * static_cast<double>(total_steps - step);
  progress_->show(line);
  Json::Object values{{"loss", result.loss},
                      {"lr", lr},
                      {"grad_norm", result.grad_norm},
                      {"tokens", state_.tokens},
                      {"target_tokens", result.target_tokens},
                      {"seconds", seconds},
                      {"data_wait_seconds", begun_->data_wait},
                      {"tokens_per_second", line.tokens_per_second},
                      {"peak_fraction", std::max(line.peak_fraction, 0.0)}};
  reports::TensorBoardWriter::Scalars scalars{{"train/loss", result.loss},
                                              {"train/lr", lr},
                                              {"train/grad_norm", result.grad_norm},
                                              {"train/data_wait_seconds", begun_->data_wait},
                                              {"train/tokens_per_second", line.tokens_per_second}};
  if (session_.config.train.z_loss > 0) {
    values.emplace_back("z_loss", result.z_loss);
    scalars.emplace_back("train/z_loss", result.z_loss);
  }
  add_sources(session_.data.train, result.sources, "loss_by_source", "train/loss/", values, scalars);
  metrics_->write(step, values);
  events_->write(step, scalars);
}

void SftRun::evaluate() {
  if (eval_rows_.empty()) return;
  const training::EvalResult result = session_.trainer->evaluate(eval_rows_);
  Json::Object values{{"eval_loss", result.loss}, {"eval_target_tokens", result.target_tokens}};
  reports::TensorBoardWriter::Scalars scalars{{"eval/loss", result.loss}};
  add_sources(*session_.data.eval, result.sources, "eval_loss_by_source", "eval/loss/", values, scalars);
  metrics_->write(state_.step, values);
  events_->write(state_.step, scalars);
  const bool better = state_.best_step < 0 || result.loss < state_.best_loss;
  log_info(fmt::format("step {}: eval loss {:.4f}{}", state_.step, result.loss,
                       better ? ", the best so far" : ""));
  if (!better) return;
  state_.best_loss = result.loss;
  state_.best_step = state_.step;
  models::save_model(*session_.model, files_.best(), session_.config.model.path);
}

void SftRun::ask(const char* when, double& result) {
  const double start = seconds_now();
  answers_ = answer_questions(session_, session_.config.eval.exact_match);
  result = accuracy(answers_);
  log_info(fmt::format("exact match {} training: {:.1f} % of {} held-out questions ({})", when, 100 * result,
                       answers_.size(), format_duration(seconds_now() - start)));
}

void SftRun::finish() {
  if (session_.config.eval.exact_match > 0) ask("after", accuracy_after_);
  models::save_model(*session_.model, files_.model(), session_.config.model.path);
  metrics_->close();
  events_->close();
  draw_curve();
  write_file(files_.summary(), summary().dump(2) + "\n");
  for (size_t i = 0; i < std::min<size_t>(answers_.size(), 3); ++i)
    log_info(fmt::format("  question: {}\n  answer:   {}{}", answers_[i].question, answers_[i].found,
                         answers_[i].correct() ? "" : fmt::format("   (expected {})", answers_[i].expected)));
  log_info("data: " + loader_->counts().describe());
  log_info(fmt::format("trained {} steps in {}: {}", state_.step, format_duration(state_.train_seconds),
                       files_.model()));
}

Json SftRun::summary() const {
  const auto known = [](double value) { return value < 0 ? Json() : Json(value); };
  return Json::Object{
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
      {"data", loader_->counts().to_json()},
      {"data_wait_seconds", loader_->seconds_waited()},
      {"device", to_string(session_.facts.device)},
      {"device_name", session_.facts.name},
      {"peak_memory_bytes", peak_memory()},
      {"model", files_.model()}};
}

void register_sft() { registry<Recipe>().add("sft", {run_sft}); }

}  // namespace temper::recipes
