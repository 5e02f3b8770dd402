// The loop over steps.
#include "recipes/run.h"

#include <algorithm>

#include "backends/peak.h"
#include "backends/timed_choices.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "base/threads.h"
#include "base/trace.h"
#include "collectives/launch.h"
#include "data/inspect.h"
#include "recipes/adapter_config.h"
#include "recipes/output.h"
#include "recipes/plan.h"
#include "recipes/run_kernels.h"

namespace temper::recipes {

namespace {

// Errors say whose they are.
template <class F>
void named(const std::string& adapter, const F& f) {
  try {
    f();
  } catch (const Error& error) {
    if (adapter.empty()) throw;
    throw Error(fmt::format("[adapters.{}] {}", adapter, error.what()), error.kind());
  }
}

// Adapters of runs that have begun go on from their own copies.
RunConfig with_sources(RunConfig config) {
  for (AdapterConfig& adapter : config.adapters) {
    const RunFiles files{run_of_adapter(config, adapter).output};
    if (!adapter.from.empty() && is_directory(files.from()) &&
        !checkpoints::list_states(files.states()).empty())
      adapter.begun_from = files.from();
  }
  return config;
}

}  // namespace

void run(const RunConfig& config, const std::string& resolved_yaml, const RunOptions& options) {
  check_output(config.output);
  check_recipe(config);
  check_adapters(config);
  collectives::launch("local", {}, [&](collectives::Group& ranks) {
    Run(with_sources(config), resolved_yaml, options, ranks).run();
  });
}

Run::Run(const RunConfig& config, const std::string& resolved_yaml, const RunOptions& options,
         collectives::Group& ranks)
    : options_(options),
      resolved_yaml_(resolved_yaml),
      session_(config, "", ranks),
      files_{config.output},
      profile_(options.profile_steps, session_.facts, config.model.dtype, files_.trace()) {
  for (const AdapterConfig& adapter : config.adapters)
    named(adapter.name,
          [&] { lanes_.push_back(std::make_unique<Lane>(session_, run_of_adapter(config, adapter))); });
  if (lanes_.empty()) lanes_.push_back(std::make_unique<Lane>(session_, config));
}

void Run::run() {
  try {
    begin_and_train();
  } catch (const Error& error) {
    progress_.reset();  // its last line stands above the error, in console.log as well
    log_quietly(fmt::format("temper: {}", error.what()));
    throw;
  }
}

void Run::begin_and_train() {
  const ops::Preferences preferred = preferred_kernels(session_.config, session_.facts);
  Setting setting{session_.model_config, session_.facts, preferred};
  for (const auto& lane : lanes_) setting.samples.push_back(lane->sample());
  const MemoryPlan plan = rehearse(session_.config, setting);
  const Pool& memory = pool(session_.facts.device);
  check_memory(session_.config, setting, plan, memory.limit());
  if (options_.dry_run) {
    const backends::RunChoices tried(files_.algorithms(), has_states(session_.config),
                                     backends::KeepChoices::kNo);
    return check(preferred, plan);
  }
  open_folders();
  const backends::RunChoices choices(files_.algorithms(), has_states(session_.config));
  session_.load_weights(preferred, options_.verbose);
  store_kernels(preferred.kernels);
  begin_each(&Lane::make_learner);
  if (lanes_.front()->is_adapter())
    adapters_ = std::make_unique<training::AdapterTrainer>(
        session_.model->decoder, trainer_options(session_.config, 1), session_.ranks);
  for (const auto& lane : lanes_) {
    log_info("data: " + data::describe_formats(lane->data().train));
    if (const std::string unused = data::describe_unused(lane->data().train); !unused.empty())
      log_info("data: " + unused);
  }
  begin_each(&Lane::start);
  find_peak();
  try {
    train();
    for (const auto& lane : lanes_) lane->finish();
  } catch (const Error& error) {
    // The device may be lost, and nothing more can be saved.
    if (error.kind() != ErrorKind::kResources && error.kind() != ErrorKind::kDefect) throw;
    throw Error(fmt::format("{}\n{}", error.what(), what_is_saved()), error.kind());
  }
  if (options_.explain_memory) log_info(memory_table(memory.usage(), memory.peak_live(), &plan));
  fail_if_any_was_lost();
}

// Of several adapters those go on whose data can be read.
void Run::begin_each(void (Lane::*begin)()) {
  for (size_t i = 0; i < lanes_.size();) {
    Lane& lane = *lanes_[i];
    try {
      named(lane.name(), [&] { (lane.*begin)(); });
      ++i;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kInput || lanes_.size() == 1) throw;
      log_warning(fmt::format("{}; this adapter does not begin, the others go on", error.what()));
      refused_.push_back(fmt::format("{} did not begin: {}", lane.name(), error.what()));
      lanes_.erase(lanes_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
}

std::string Run::what_is_saved() const {
  std::vector<std::string> lines;
  for (const auto& lane : lanes_)
    lines.push_back(lane->saved_step() == 0
                        ? fmt::format("Nothing of this run is saved in {}", lane->files().folder)
                        : fmt::format("Step {} is saved in {}: run the same command to go on from there",
                                      lane->saved_step(), lane->files().folder));
  return join(lines, "\n");
}

void Run::train() {
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
    std::vector<std::string> steps;
    for (const auto& lane : lanes_)
      steps.push_back(lanes_.size() == 1 ? std::to_string(lane->step())
                                         : fmt::format("{} of {}", lane->step(), lane->name()));
    throw Error(
        fmt::format("stopped by a signal after step {}; everything is saved in {}: run the same command "
                    "to go on",
                    join(steps, ", "), files_.folder),
        ErrorKind::kInterrupted);
  }
  profile_.finish();
  progress_->finish();
  progress_.reset();
}

// On a device a step is reported when the next one has been asked for, so that the device never waits for us.
void Run::train_one() {
  const std::vector<Lane*> lanes = read_batches();
  if (lanes.empty()) return;
  std::vector<training::PendingStep> pending = begin(lanes);
  report_all();
  for (size_t i = 0; i < lanes.size(); ++i) lanes[i]->begun(std::move(pending[i]));
  if (session_.facts.device.type == DeviceType::kCpu) report_all();
}

// A row that ends a lane must not cost what was learnt before it.
std::vector<Lane*> Run::read_batches() {
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

std::vector<training::PendingStep> Run::begin(const std::vector<Lane*>& lanes) {
  std::vector<training::PendingStep> pending;
  if (!adapters_) {
    pending.push_back(lanes.front()->begin_alone());
    return pending;
  }
  std::vector<training::AdapterShare> shares;
  for (const Lane* lane : lanes) shares.push_back(lane->share());
  return adapters_->begin(shares);
}

void Run::report_all() {
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
void Run::lose(Lane& lane, const Error& error, bool by_data) {
  const bool learnt = lane.is_unsaved();
  const auto kept = [&] {
    return fmt::format("the {} steps before it are saved in {}", lane.step(), lane.files().folder);
  };
  const bool ends_all = error.kind() != ErrorKind::kInput || lanes_.size() == 1;
  if (!ends_all || by_data) lane.stop(error.what(), by_data);
  if (ends_all) {
    if (!learnt || !by_data || error.kind() != ErrorKind::kInput) throw error;
    throw Error(fmt::format("{}; {}", error.what(), kept()), error.kind());
  }
  log_warning(fmt::format("[{}] {}; this adapter stops, the others go on{}", lane.name(), error.what(),
                          by_data && lane.step() > 0 ? "; " + kept() : std::string()));
}

void Run::fail_if_any_was_lost() const {
  std::vector<std::string> lost = refused_;
  for (const auto& lane : lanes_)
    if (!lane->stop_reason().empty())
      lost.push_back(fmt::format("{} after step {}: {}", lane->name(), lane->step(), lane->stop_reason()));
  if (lost.empty()) return;
  fail(
      "[adapters] {} of {} stopped early, the others are done:\n  {}\nMend rows in their place (as many must "
      "remain) or set data.on_bad_row: skip, and the same command goes on. With other settings give the "
      "adapter "
      "another name; from: goes on from what it has learnt",
      lost.size(), lanes_.size() + refused_.size(), join(lost, "\n  "));
}

void Run::evaluate_and_save(bool stopping) {
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
  // All states appear together: a process that is killed goes on from one step.
  for (Lane* lane : saved) lane->prepare_save();
  for (Lane* lane : saved) lane->commit_save();
}

namespace {

// The mean over adapters, as the loss.
void show_preference(const std::vector<Lane::Report>& reports, reports::StepReport& line) {
  double margin = 0, accuracy = 0, count = 0;
  bool pairs = true;
  for (const Lane::Report& report : reports) {
    if (!report.result.preference) continue;
    ++count;
    margin += report.result.preference->margin();
    accuracy += report.result.preference->accuracy();
    pairs = pairs && report.result.preference->pairs > 0;
  }
  if (count == 0) return;
  line.extras.emplace_back("margin", margin / count);
  if (pairs) line.extras.emplace_back("accuracy", accuracy / count);
}

}  // namespace

void Run::show(const std::vector<Lane::Report>& reports) {
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
  show_preference(reports, line);
  line.tokens_per_second = tokens / seconds;
  if (peak_flops_ > 0) line.peak_fraction = flops / seconds / peak_flops_;
  line.memory_bytes = memory_in_use();
  progress_->show(line);
}

// Of the process, or of the device that trains.
int64_t Run::memory_in_use() const {
  if (session_.facts.device.type == DeviceType::kCpu) return current_resident_bytes();
  int64_t held = 0;
  for (const RegionUsage& region : pool(session_.facts.device).usage()) held += region.held;
  return held;
}

void Run::find_peak() {
  const HardwareFacts& facts = session_.facts;
  peak_flops_ = backends::matmul_peak(facts, session_.config.model.dtype, num_threads());
  if (facts.device.type == DeviceType::kCpu) return;
  log_info(fmt::format(
      "device: {} on {}{}", facts.name, to_string(facts.device),
      peak_flops_ > 0
          ? fmt::format("; peak is the published {:.0f} TFLOP/s of dense bfloat16", peak_flops_ / 1e12)
          : std::string()));
}

}  // namespace temper::recipes
