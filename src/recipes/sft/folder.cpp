// The run's folder: starting, resuming, saving, checking.
#include <numeric>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoints/training_state.h"
#include "ops/measure.h"
#include "ops/report.h"
#include "recipes/sft/plan.h"
#include "recipes/sft/sft.h"

namespace temper::recipes {
namespace {

constexpr const char* kTensors = "optimizer.safetensors";

}  // namespace

void SftRun::open_folder() {
  make_directories(files_.folder);
  // A folder without a state holds nothing that could be continued or lost.
  if (exists(files_.config()) && !checkpoints::list_states(files_.states()).empty()) {
    if (session_.config.train.resume == Resume::kNever)
      fail("[{}] holds a run already, and train.resume is never; choose another output, or train.resume auto",
           files_.folder);
    const std::vector<std::string> conflicts = conflicting_keys(files_.config(), session_.config);
    if (!conflicts.empty())
      fail(
          "[{}] holds a run with another configuration, which cannot be continued with this one:\n  {}\n"
          "Choose another output, or restore these keys",
          files_.folder, join(conflicts, "\n  "));
  }
  checkpoints::sweep_temporary(files_.states());
  checkpoints::require_free_disk(files_.folder, plan_disk(session_.config, session_.architecture));
  write_file(files_.config(), resolved_yaml_);
}

// What is tried first for fields that were left out: the kernels that the run had so far, so that it goes on
// bit for bit; for a new run what was measured on this machine.
ops::Preferences SftRun::preferred_kernels() const {
  if (!exists(files_.kernels()) || checkpoints::list_states(files_.states()).empty())
    return {ops::remembered(session_.facts, session_.config.model.dtype)};
  ops::FieldValues before;
  const Json kernels = Json::parse_file(files_.kernels());
  if (const Json* hardware = kernels.find("hardware");
      hardware != nullptr && *hardware != Json(session_.facts.hardware)) {
    log_warning(fmt::format("the run was on {} so far and is on {} now: it goes on, but not bit for bit",
                            kernels.at("device").dump(), session_.facts.name));
    return {ops::remembered(session_.facts, session_.config.model.dtype)};
  }
  for (const Json& choice : kernels.at("choices").as_array())
    if (choice.at("modules").as_string() == "*" && choice.at("kernel").is_string())
      before[ops::field_of(choice.at("field").as_string())] = choice.at("kernel").as_string();
  return {std::move(before), "as in this run so far"};
}

// Other hardware may have other kernels: the run can go on, but not bit for bit.
void SftRun::store_kernels(const ops::FieldValues& before) const {
  const ops::BoundOps& ops = session_.model->decoder.ops();
  for (const ops::Choice& choice : ops.choices()) {
    const auto was = before.find(ops::field_of(choice.field));
    if (exists(files_.kernels()) && was != before.end() && choice.modules.empty() &&
        was->second != choice.provider)
      log_warning(fmt::format("{} was {} so far and is {} now: the run goes on, but not bit for bit",
                              choice.field, was->second, choice.provider));
  }
  write_file(files_.kernels(), ops::explain_json(ops, session_.facts).dump(2) + "\n");
}

bool SftRun::restore() {
  const auto reader = checkpoints::open_newest(files_.states());
  if (!reader) return false;
  const Json state = reader->json();
  const checkpoints::SafetensorsFile tensors = reader->tensors(kTensors);
  for (const auto& [name, tensor] : session_.optimizer->state()) tensor.copy_from(tensors.tensor(name));
  state_.step = state.at("step").as_int();
  state_.tokens = state.at("tokens").as_int();
  state_.train_seconds = state.at("train_seconds").as_double();
  state_.accuracy_before = state.at("accuracy_before").as_double();
  state_.best_loss = state.at("best_loss").as_double();
  state_.best_step = state.at("best_step").as_int();
  state_.last_loss = state.at("last_loss").as_double();
  saved_step_ = state_.step;
  session_.optimizer->restored(state_.step);
  loader_->restore(state.at("data"));
  log_info(fmt::format("resuming {} after step {}", files_.folder, state_.step));
  return true;
}

void SftRun::save() {
  checkpoints::StateWriter writer(files_.states(), state_.step);
  writer.add_tensors(kTensors, session_.optimizer->state());
  writer.add_json("state.json", Json::Object{{"step", state_.step},
                                             {"tokens", state_.tokens},
                                             {"train_seconds", state_.train_seconds},
                                             {"accuracy_before", state_.accuracy_before},
                                             {"best_loss", state_.best_loss},
                                             {"best_step", state_.best_step},
                                             {"last_loss", state_.last_loss},
                                             {"data", loader_->state()}});
  writer.commit();
  saved_step_ = state_.step;
  std::vector<int64_t> protected_steps;
  if (state_.best_step >= 0) protected_steps.push_back(state_.best_step);
  checkpoints::prune_states(files_.states(), session_.config.checkpoint.keep_last, protected_steps);
}

void SftRun::check() const {
  const RunConfig& config = session_.config;
  const auto model = models::load_model(config.model.path, session_.build_options(preferred_kernels()));
  data::LoaderOptions options = loader_options(config);
  options.threads = 0;
  data::Loader loader(session_.data.train, options);
  const auto batch = loader.next();
  if (session_.data.eval) read_all(*session_.data.eval, config);
  checkpoints::require_free_disk(config.output, plan_disk(config, session_.architecture));
  const MemoryPlan plan = plan_memory(config, session_.architecture, session_.facts);
  const Pool& memory = pool(session_.facts.device);
  const int64_t total = std::accumulate(plan.begin(), plan.end(), int64_t{0});
  std::string report = fmt::format(
      "configuration  ok\nmodel          {}: {:.1f} M parameters, {}\ntokenizer      {} tokens, {}\n"
      "data           {} rows; first update: {} rows, {} tokens, {} of them targets\nsteps          {}\n"
      "disk           {} needed, {} free\nmemory         about {} needed, {} allowed\n",
      config.model.path, static_cast<double>(model->decoder.parameters().num_elements()) / 1e6,
      to_string(config.model.dtype), session_.text.tokenizer.vocab_size(),
      session_.text.chat ? "with a chat template" : "without a chat template", session_.data.train.size(),
      batch->rows.size(), batch->tokens, batch->target_tokens, session_.total_steps(),
      format_bytes(plan_disk(config, session_.architecture)), format_bytes(free_disk_bytes(config.output)),
      format_bytes(total), format_bytes(memory.limit()));
  log_info(report + "kernels\n" + ops::explain(model->decoder.ops(), session_.facts) +
           "Nothing was trained (--dry-run).");
  if (options_.explain_memory) log_info(memory_table(memory.usage(), &plan));
}

void SftRun::draw_curve() const {
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
