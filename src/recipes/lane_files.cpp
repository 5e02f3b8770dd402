// A lane's folder: starting, resuming, saving, what is left at the end.
#include <algorithm>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoints/adapter_folder.h"
#include "checkpoints/hf_folder.h"
#include "checkpoints/placed_tensors.h"
#include "config/print.h"
#include "models/adapter.h"
#include "recipes/adapter_config.h"
#include "recipes/lane.h"
#include "recipes/origin.h"
#include "recipes/plan_disk.h"
#include "reports/plot.h"

namespace temper::recipes {
namespace {

constexpr const char* kTensors = "optimizer.safetensors";

std::string yaml_of(RunConfig config) { return config::dump(config::schema_of(config)); }

// The folder that an adapter goes on from may change while the run is stopped.
void keep_source(const std::string& from, const std::string& copy) {
  remove_all(copy);
  if (from.empty()) return;
  make_directories(copy);
  for (const std::string& name : list_directory(from))
    if (name == checkpoints::kAdapterConfig || name.ends_with(".safetensors"))
      write_file(join_path(copy, name), read_file(join_path(from, name)));
}

}  // namespace

bool Lane::has_states() const { return !checkpoints::list_states(files_.states()).empty(); }

Sample Lane::sample() const {
  constexpr int64_t kRows = 8;
  data::LoaderOptions options = loader_options(config_);
  options.threads = 0;
  options.pack_window = options.rows_per_step = kRows;
  options.tokens_per_step = 0;
  // The run itself reports the rows that it skips.
  if (options.on_bad_row == data::OnBadRow::kSkip) options.on_bad_row = data::OnBadRow::kCount;
  try {
    return {data::Loader(data_.train, options).next()->rows, data_.eval ? data_.eval->size() : 0};
  } catch (const Error&) {
    return {};
  }
}

int64_t Lane::plan_disk() const {
  LearnerSizes sizes{total_steps(), data_.train.size() + (data_.eval ? data_.eval->size() : 0), 0};
  for (const std::string& name : checkpoints::SaveOptions().extra_files)
    if (const std::string file = join_path(config_.model.path, name); exists(file))
      sizes.extra_bytes += file_size(file);
  return recipes::plan_disk(config_, session_->architecture, sizes);
}

// A folder without a state or a result holds nothing that could be continued or lost.
void Lane::check_folder() const {
  const bool never = config_.train.resume == Resume::kNever;
  if (never && (has_states() || exists(files_.model()) || exists(files_.adapter())))
    fail("[{}] holds a run already, and train.resume is never; choose another output, or train.resume auto",
         files_.folder);
  if (!exists(files_.config()) || !has_states()) return;
  const std::vector<std::string> conflicts = conflicting_keys(files_.config(), config_);
  if (!conflicts.empty())
    fail(
        "[{}] holds a run with another configuration, which cannot be continued with this one:\n  {}\n"
        "{}, or restore these keys",
        files_.folder, join(conflicts, "\n  "),
        is_adapter() ? "Give the adapter another name (from: goes on from what it has learnt)"
                     : "Choose another output");
}

void Lane::open_folder(const std::string& resolved_yaml) const {
  make_directories(files_.folder);
  check_folder();
  if (is_adapter() && !has_states()) keep_source(config_.adapters.front().from, files_.from());
  checkpoints::sweep_temporary(files_.states());
  write_file(files_.config(), is_adapter() ? yaml_of(config_) : resolved_yaml);
}

bool Lane::restore() {
  const auto reader = checkpoints::open_newest(files_.states());
  if (!reader) return false;
  const Json state = reader->json();
  if (const Json* base = state.find("base");
      base != nullptr && is_adapter() && base->as_string() != session_->base)
    fail(
        "[{}] was trained on other weights than {} holds now; give the base that the run began with, or "
        "another output",
        files_.folder, config_.model.path);
  check_origin(state);
  const checkpoints::SafetensorsFile tensors = reader->tensors(kTensors);
  checkpoints::read_placed(tensors, optimizer_->state());
  state_.step = state.at("step").as_int();
  state_.tokens = state.at("tokens").as_int();
  state_.train_seconds = state.at("train_seconds").as_double();
  state_.accuracy_before = state.at("accuracy_before").as_double();
  state_.best_loss = state.at("best_loss").as_double();
  state_.best_step = state.at("best_step").as_int();
  state_.last_loss = state.at("last_loss").as_double();
  saved_step_ = state_.step;
  optimizer_->restored(state_.step);
  loader_->restore(state.at("data"), state.find("stopped") != nullptr);
  log_info(fmt::format("resuming {} after step {}", files_.folder, state_.step));
  return true;
}

// Other texts, or another model, under the same names. States of older versions do not say.
void Lane::check_origin(const Json& state) const {
  const Json* origin = state.find("origin");
  if (origin == nullptr) return;
  for (const auto& [path, was] : origin->as_object()) {
    const Json* is = session_->origin.find(path);
    if (is == nullptr) continue;
    if (const std::string other = difference_of_origin(path, was, *is); !other.empty())
      fail("[{}] began with another {}; restore that, or {}", files_.folder, other,
           is_adapter() ? "give the adapter another name (from: goes on from what it has learnt)"
                        : "choose another output");
  }
}

void Lane::prepare_save(bool again) {
  if (saved_step_ == state_.step && !again) return;
  checkpoints::StateWriter& writer = prepared_.emplace(files_.states(), state_.step);
  checkpoints::add_placed(&writer, kTensors, optimizer_->state(), session_->ranks);
  Json state = Json::Object{{"step", state_.step},
                            {"tokens", state_.tokens},
                            {"train_seconds", state_.train_seconds},
                            {"accuracy_before", state_.accuracy_before},
                            {"best_loss", state_.best_loss},
                            {"best_step", state_.best_step},
                            {"last_loss", state_.last_loss},
                            {"data", refused_at_.value_or(loader_->state())},
                            {"origin", session_->origin}};
  if (!stop_reason_.empty()) state.set("stopped", stop_reason_);
  if (is_adapter()) state.set("base", session_->base);
  writer.add_json("state.json", state);
}

void Lane::commit_save() {
  if (!prepared_) return;
  prepared_->commit();
  prepared_.reset();
  saved_step_ = state_.step;
  std::vector<int64_t> protected_steps;
  if (state_.best_step >= 0) protected_steps.push_back(state_.best_step);
  checkpoints::prune_states(files_.states(), config_.checkpoint.keep_last, protected_steps);
}

void Lane::save_result(const std::string& folder) const {
  if (adapter_)
    models::save_adapter(*adapter_, folder, config_.model.path);
  else
    models::save_model(*session_->model, folder, config_.model.path);
  // What was learnt is of use with the template it was learnt with.
  if (!config_.data.chat_template.empty())
    write_file(join_path(folder, "chat_template.jinja"), session_->text.chat->text);
}

Lane::Check Lane::check() const {
  check_folder();
  data::LoaderOptions options = loader_options(config_);
  options.threads = 0;
  data::Loader loader(data_.train, options);
  Check check{*loader.next(), 0, "all weights"};
  warn_of_warmup();
  if (const auto reader = checkpoints::open_newest(files_.states()))
    check.step = reader->json().at("step").as_int();
  if (data_.eval) read_all(*data_.eval, config_);
  if (!is_adapter()) return check;
  const WeightTable base = layers::decoder_weight_table(session_->architecture);
  const AdapterConfig& adapter = config_.adapters.front();
  const LoraPlan plan = choose_adapter(adapter, base).plan;
  if (const std::string& from = source_of(adapter); !from.empty())
    checkpoints::check_weights(checkpoints::ModelFolder::open_adapter(from), lora_table(base, plan));
  check.trained =
      fmt::format("{} adapted modules, {} tensors trained whole", plan.targets.size(), plan.saved.size());
  return check;
}

void Lane::finish() {
  if (stop_reason_.empty() && config_.eval.exact_match > 0) ask("after", accuracy_after_);
  const std::string result = is_adapter() ? files_.adapter() : files_.model();
  if (!diverged_) save_result(result);
  metrics_->close();
  events_->close();
  draw_curve();
  write_file(files_.summary(), summary().dump(2) + "\n");
  for (size_t i = 0; i < std::min<size_t>(answers_.size(), 3); ++i)
    log(fmt::format("  question: {}\n  answer:   {}{}", answers_[i].question, answers_[i].found,
                    answers_[i].correct() ? "" : fmt::format("   (expected {})", answers_[i].expected)));
  log("data: " + loader_->counts().describe());
  if (trainer_ && session_->facts.device.type != DeviceType::kCpu)
    log(training::describe(trainer_->graphs()));
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

Json Lane::summary() const {
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
      {"data", loader_->counts().to_json()},
      {"data_wait_seconds", loader_->seconds_waited()},
      {"device", to_string(session_->facts.device)},
      {"device_name", session_->facts.name},
      {"peak_memory_bytes", session_->peak_memory()}};
  if (!stop_reason_.empty()) values.emplace_back("stopped", stop_reason_);
  if (!diverged_)
    values.emplace_back(is_adapter() ? "adapter" : "model", is_adapter() ? files_.adapter() : files_.model());
  return values;
}

void Lane::draw_curve() const {
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
