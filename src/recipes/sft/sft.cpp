// The loop over steps.
#include "recipes/sft/sft.h"

#include <algorithm>

#include "backends/peak.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "base/threads.h"
#include "base/trace.h"
#include "data/inspect.h"
#include "recipes/adapter_config.h"
#include "recipes/sft/plan.h"

namespace temper::recipes {
namespace {

void run_sft(const RunConfig& config, const std::string& resolved_yaml, const RunOptions& options) {
  SftRun(config, resolved_yaml, options).run();
}

}  // namespace

SftRun::SftRun(const RunConfig& config, const std::string& resolved_yaml, const RunOptions& options)
    : options_(options),
      resolved_yaml_(resolved_yaml),
      session_(config),
      files_{config.output},
      profile_(options.profile_steps, session_.facts, config.model.dtype, files_.trace()) {
  check_adapters(config);
  for (const AdapterConfig& adapter : config.adapters)
    lanes_.push_back(std::make_unique<Lane>(session_, run_of_adapter(config, adapter)));
  if (lanes_.empty()) lanes_.push_back(std::make_unique<Lane>(session_, config));
}

void SftRun::run() {
  const MemoryPlan plan = plan_memory(session_.config, session_.architecture, session_.facts);
  check_memory(session_.config, session_.architecture, session_.facts, pool(session_.facts.device).limit());
  if (options_.dry_run) return check();
  open_folders();
  const ops::Preferences preferred = preferred_kernels();
  session_.load_weights(preferred);
  store_kernels(preferred.kernels);
  for (const auto& lane : lanes_) lane->make_learner();
  if (lanes_.front()->is_adapter())
    adapters_ = std::make_unique<training::AdapterTrainer>(session_.model->decoder,
                                                           trainer_options(session_.config, 1));
  for (const auto& lane : lanes_) {
    log_info("data: " + data::describe_formats(lane->data().train));
    lane->start();
  }
  find_peak();
  try {
    train();
    for (const auto& lane : lanes_) lane->finish();
  } catch (const Error& error) {
    // The device may be lost, and nothing more can be saved.
    if (error.kind() != ErrorKind::kResources && error.kind() != ErrorKind::kDefect) throw;
    throw Error(fmt::format("{}\n{}", error.what(), what_is_saved()), error.kind());
  }
  if (options_.explain_memory) log_info(memory_table(pool(session_.facts.device).usage(), &plan));
  fail_if_any_was_lost();
}

std::string SftRun::what_is_saved() const {
  std::vector<std::string> lines;
  for (const auto& lane : lanes_)
    lines.push_back(lane->saved_step() == 0
                        ? fmt::format("Nothing of this run is saved in {}", lane->files().folder)
                        : fmt::format("Step {} is saved in {}: run the same command to go on from there",
                                      lane->saved_step(), lane->files().folder));
  return join(lines, "\n");
}

void SftRun::train() {
  const training::StopSignals signals;
  progress_ = std::make_unique<reports::Progress>();
  const auto goes_on = [](const auto& lane) { return !lane->is_done(); };
  while (std::any_of(lanes_.begin(), lanes_.end(), goes_on)) {
    profile_.before_step();
    train_one();
    const bool stop = signals.requested();
    evaluate_and_save(stop);
    if (!stop || std::none_of(lanes_.begin(), lanes_.end(), goes_on)) continue;
    progress_->finish();
    throw Error(
        fmt::format("stopped by a signal after step {}; everything is saved in {}: run the same command "
                    "to go on",
                    lanes_.front()->step(), files_.folder),
        ErrorKind::kInterrupted);
  }
  profile_.finish();
  progress_->finish();
  progress_.reset();
}

// On a device a step is reported when the next one has been asked for, so that the device never waits for us.
void SftRun::train_one() {
  const std::vector<Lane*> lanes = read_batches();
  if (lanes.empty()) return;
  std::vector<training::PendingStep> pending = begin(lanes);
  report_all();
  for (size_t i = 0; i < lanes.size(); ++i) lanes[i]->begun(std::move(pending[i]));
  if (session_.facts.device.type == DeviceType::kCpu) report_all();
}

// A row that ends a lane must not cost what was learnt before it.
std::vector<Lane*> SftRun::read_batches() {
  std::vector<Lane*> lanes;
  for (const auto& lane : lanes_) {
    if (lane->is_done()) continue;
    try {
      lane->read_batch();
      lanes.push_back(lane.get());
    } catch (const Error& error) {
      report_all();
      lose(*lane, error, true);
    }
  }
  return lanes;
}

std::vector<training::PendingStep> SftRun::begin(const std::vector<Lane*>& lanes) {
  std::vector<training::PendingStep> pending;
  if (!adapters_) {
    pending.push_back(lanes.front()->begin_alone());
    return pending;
  }
  std::vector<training::AdapterShare> shares;
  for (const Lane* lane : lanes) shares.push_back(lane->share());
  return adapters_->begin(shares);
}

void SftRun::report_all() {
  std::vector<Lane::Report> reports;
  for (const auto& lane : lanes_) try {
      if (auto report = lane->report(peak_flops_)) reports.push_back(std::move(*report));
    } catch (const Error& error) {
      lose(*lane, error, false);
    }
  if (!reports.empty()) show(reports);
}

// Alone, a lane ends the run; the others of several go on. After a step that diverged there is nothing to
// save.
void SftRun::lose(Lane& lane, const Error& error, bool save) {
  const bool learnt = lane.is_unsaved();
  if (save) lane.save();
  const std::string kept =
      fmt::format("the {} steps before it are saved in {}", lane.step(), lane.files().folder);
  if (error.kind() != ErrorKind::kInput) throw error;
  if (lanes_.size() == 1) {
    if (!learnt || !save) throw error;
    throw Error(fmt::format("{}; {}", error.what(), kept), error.kind());
  }
  lane.stop(error.what());
  log_warning(fmt::format("[{}] {}; this adapter stops, the others go on{}", lane.name(), error.what(),
                          save ? "; " + kept : std::string()));
}

void SftRun::fail_if_any_was_lost() const {
  std::vector<std::string> lost;
  for (const auto& lane : lanes_)
    if (!lane->stop_reason().empty())
      lost.push_back(fmt::format("{} after step {}: {}", lane->name(), lane->step(), lane->stop_reason()));
  if (!lost.empty())
    fail(
        "[adapters] {} of {} stopped early, the others are done:\n  {}\nMend that and run the same command "
        "to go "
        "on with them",
        lost.size(), lanes_.size(), join(lost, "\n  "));
}

void SftRun::evaluate_and_save(bool stopping) {
  const auto is_due = [](const Lane& lane, int64_t every) {
    return lane.is_done() || (every > 0 && lane.step() % every == 0);
  };
  std::vector<Lane*> evaluated, saved;
  for (const auto& lane : lanes_) {
    if (!lane->stop_reason().empty() || !lane->is_unsaved()) continue;
    if (is_due(*lane, lane->config().eval.every_steps)) evaluated.push_back(lane.get());
    if (stopping || is_due(*lane, lane->config().checkpoint.every_steps)) saved.push_back(lane.get());
  }
  if (!evaluated.empty() || !saved.empty()) report_all();
  for (Lane* lane : evaluated) lane->evaluate();
  for (Lane* lane : saved) lane->save();
}

void SftRun::show(const std::vector<Lane::Report>& reports) {
  reports::StepReport line;
  double tokens = 0, flops = 0, seconds = 0;
  for (const Lane::Report& report : reports) {
    // Of several adapters the line counts the longest's steps; losses are a mean.
    if (report.total_steps > line.total_steps) {
      line.step = report.step;
      line.total_steps = report.total_steps;
      line.lr = report.lr;
      line.seconds_left = report.train_seconds / static_cast<double>(report.step) *
                          static_cast<double>(report.total_steps - report.step);
    }
    line.loss += report.result.loss / static_cast<double>(reports.size());
    line.grad_norm = std::max(line.grad_norm, report.result.grad_norm);
    tokens += static_cast<double>(report.result.tokens);
    flops += report.result.flops;
    seconds = std::max(seconds, report.seconds);
  }
  line.tokens_per_second = tokens / seconds;
  if (peak_flops_ > 0) line.peak_fraction = flops / seconds / peak_flops_;
  line.memory_bytes = memory_in_use();
  progress_->show(line);
}

// Of the process, or of the device that trains.
int64_t SftRun::memory_in_use() const {
  if (session_.facts.device.type == DeviceType::kCpu) return current_resident_bytes();
  int64_t held = 0;
  for (const RegionUsage& region : pool(session_.facts.device).usage()) held += region.held;
  return held;
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

void register_sft() { registry<Recipe>().add("sft", {run_sft}); }

}  // namespace temper::recipes
