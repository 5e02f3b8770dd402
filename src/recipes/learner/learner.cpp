// A learner's training: what it is made of, batches and steps.
#include "recipes/learner/learner.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/clock.h"
#include "base/date.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "base/threads.h"
#include "base/trace.h"
#include "collectives/at_root.h"
#include "config/load.h"
#include "models/adapter.h"
#include "parallel/replicas.h"
#include "recipes/keys/adapter_config.h"
#include "recipes/parts/critic.h"
#include "recipes/parts/loaded_batches.h"
#include "recipes/parts/rollout_memory.h"
#include "recipes/setup/quantizer_state.h"
#include "recipes/setup/taught_ending.h"
#include "training/objectives/gather_rows.h"

namespace temper::recipes {
namespace {

// What questions a run asks.
Json questions_of(RunConfig config) {
  const config::Schema schema = config::schema_of(config);
  Json::Array values;
  for (const char* key :
       {"eval.exact_match", "eval.max_new_tokens", "data.eval", "data.eval_fraction", "data.chat_template"})
    values.push_back(config::value_of(*schema.find_path(key)));
  return values;
}

// Of the answers after training, as the run's summary has it where the same were asked; else -1.
double known_accuracy(const RunFiles& files, const RunConfig& now) try {
  RunConfig before;
  config::Schema schema = config::schema_of(before);
  config::load_saved(schema, files.config());
  if (questions_of(before) != questions_of(now)) return -1;
  const Json summary = Json::parse_file(files.summary());
  const Json* const found = summary.find("exact_match_after");
  return found != nullptr && found->is_number() ? found->as_double() : -1;
} catch (const Error&) {
  return -1;  // the folder was not finished
}

}  // namespace

Learner::Learner(const RunSetup& setup, RunConfig config, DataSets data)
    : inputs_(setup, std::move(config), std::move(data)),
      schedule_(inputs_),
      metrics_(inputs_),
      update_(inputs_) {}

void Learner::build() { build_with(inputs_.recipe().objective); }

void Learner::build_to_measure() {
  const Recipe& recipe = inputs_.recipe();
  build_with(recipe.measured != nullptr ? recipe.measured : recipe.objective);
}

void Learner::build_with(Recipe::MakeObjective make_objective) {
  make_adapter();
  if (make_objective != nullptr) objective_ = make_objective(inputs_.for_objective());
  make_trainer();
}

void Learner::make_adapter() {
  if (!is_adapter()) return;
  const models::Model& model = *inputs_.setup.model;
  const AdapterConfig& given = inputs_.config.adapters.front();
  const AdapterChoice choice = choose_adapter(given, model.decoder.parameters().table());
  adapter_ = given.from.empty() ? models::new_adapter(model, choice.lora,
                                                      static_cast<uint64_t>(inputs_.config.train.seed), "")
                                : models::load_adapter(model, source_of(given));
  adapter_->set_dropout(choice.lora.dropout);
  inputs_.log(fmt::format("adapter: {} modules, {:.2f} M parameters", adapter_->plan().targets.size(),
                          static_cast<double>(adapter_->parameters().num_elements()) / 1e6));
}

void Learner::make_trainer() {
  models::Model& model = *inputs_.setup.model;
  layers::ParameterStore& trained = adapter_ ? adapter_->parameters() : model.decoder.parameters();
  optimizer_ = std::make_unique<optimizers::AdamW>(
      trained, model.decoder.ops(), adamw_options(inputs_.config.train), inputs_.setup.groups->sharing());
  const training::TrainerOptions options =
      trainer_options(inputs_.config, model.decoder, inputs_.data.train.members().size());
  if (!adapter_)
    trainer_ = std::make_unique<training::Trainer>(model.decoder, *optimizer_, options, objective_,
                                                   inputs_.data_ranks());
}

void Learner::start() {
  const Recipe& recipe = inputs_.recipe();
  std::optional<RolloutSettings> rollouts;
  if (recipe.rollouts != nullptr) rollouts = recipe.rollouts(inputs_.config);
  ending_ = taught_ending(inputs_.data.train, inputs_.setup.text, rollouts ? &*rollouts : nullptr);
  if (const auto wish = recipe.critic(inputs_.config)) schedule_.hold(wish->warmup_updates);
  if (recipe.batches != nullptr) {
    batches_ = recipe.batches(batch_inputs());
  } else {
    batches_ = std::make_unique<LoadedBatches>(inputs_.data.train, loader_options(inputs_.config),
                                               inputs_.ranks(), inputs_.data_ranks());
    if (inputs_.data.eval) read_eval_rows();
  }
  owner_of_states_ = checkpoints::owner_of_states(inputs_.ranks());
  const bool resumed = restore();
  if (!resumed) progress_.started = utc_now();
  if (!resumed && !is_adapter() && !read_calibration(inputs_.setup, inputs_.files.calibration()))
    calibrate_quantizers(
        inputs_.setup.model->decoder, inputs_.config,
        [&] {
          return rows_to_calibrate({{inputs_.config, inputs_.data}},
                                   inputs_.config.quantize.calibration_rows);
        },
        inputs_.ranks(), inputs_.data_ranks());
  metrics_.open(progress_, resumed);
  if (inputs_.config.eval.exact_match > 0 && progress_.accuracy_before < 0)
    ask("before", progress_.accuracy_before);
  was_finished_ = is_done() && !progress_.owes_evaluation;
  if (was_finished_)
    accuracy_after_ = inputs_.ranks()
                          .gather("answers of before",
                                  inputs_.is_root() ? known_accuracy(inputs_.files, inputs_.config) : -1)
                          .front();
  schedule_.warn_of_keys_without_effect();
}

void Learner::read_eval_rows() {
  eval_rows_ =
      shared_rows("rows of the evaluation", [&] { return read_all(*inputs_.data.eval, inputs_.config); });
}

std::vector<data::PackedRow> Learner::shared_rows(
    std::string_view name, const std::function<std::vector<data::PackedRow>()>& read) const {
  return training::shared_rows(inputs_.ranks(), inputs_.data_ranks(), name, read);
}

void Learner::read_batch() {
  const trace::Span span("data");
  update_.start_clock();
  const double waited = batches_->seconds_waited();
  read_at_ = objective_ && inputs_.is_root() ? batches_->state() : Json();
  data::Batch batch = batches_->next();
  std::swap(batch_, batch);
  try {
    check_rows();
  } catch (const Error&) {
    std::swap(batch_, batch);
    put_back_batch();
    throw;
  }
  data_wait_ = batches_->seconds_waited() - waited;
}

void Learner::put_back_batch() { refused_at_ = read_at_; }

void Learner::check_rows() const {
  if (objective_) objective_->check(batch_.rows, inputs_.data_ranks());
}

training::PendingStep Learner::begin_alone() {
  return trainer_->begin(batch_.rows, schedule_.lr(progress_.step));
}

training::AdapterShare Learner::share() const {
  return {adapter_.get(),
          optimizer_.get(),
          &batch_.rows,
          schedule_.lr(progress_.step),
          static_cast<uint64_t>(inputs_.config.train.seed),
          inputs_.data.train.members().size(),
          objective_.get()};
}

void Learner::begun(training::PendingStep pending) {
  UpdateReport known{.total_steps = total_steps(),
                     .lr = schedule_.lr(progress_.step),
                     .data_wait = data_wait_,
                     .epoch = batch_.progress,
                     .values = {}};
  known.step = ++progress_.step;
  batches_->add_metrics(known.values, known.scalars);
  update_.begin(std::move(pending), std::move(known));
}

std::optional<UpdateReport> Learner::report(double peak_flops) {
  std::optional<UpdateReport> report = update_.wait();
  if (!report) return report;
  progress_.add(*report);
  metrics_.write(*report, peak_flops);
  return report;
}

void Learner::evaluate() {
  progress_.owes_evaluation = false;
  if (!inputs_.data.eval) return;
  std::optional<BatchSource::Judged> judged = batches_->evaluate();
  if (!judged)
    judged = evaluation_by_loss(
        objective_ ? objective_->evaluate(eval_rows_, adapter_.get(), inputs_.data_ranks())
                   : training::evaluate(inputs_.setup.model->decoder, adapter_.get(), eval_rows_,
                                        inputs_.config.train.micro_batch_tokens, inputs_.data_ranks()),
        *inputs_.data.eval, objective_ == nullptr);
  metrics_.note(progress_.step, judged->values, judged->scalars);
  const bool is_best = progress_.keep_if_best(-judged->value);
  inputs_.log(fmt::format("step {}: {}{}", progress_.step, judged->text, is_best ? ", the best so far" : ""));
  if (is_best)
    with_whole(
        [&](const collectives::Root&, const Whole& whole) { save_result(inputs_.files.best(), whole); });
}

void Learner::check_replicas() const {
  std::vector<PlacedTensor> held = trained().placed();
  for (const PlacedTensor& state : optimizer_->state()) held.push_back(state);
  if (const Critic* const critic = batches_->critic()) {
    for (PlacedTensor& state : critic->state()) {
      state.name = fmt::format("critic.{}", state.name);
      held.push_back(std::move(state));
    }
  }
  parallel::check_replicas(inputs_.ranks(), held, progress_.step);
}

void Learner::ask(const char* when, double& result) {
  const double start = seconds_now();
  const auto answer = [&] {
    answers_ = answer_questions(inputs_.setup, inputs_.config, *inputs_.data.eval, adapter_.get(), ending_);
    result = accuracy(answers_);
  };
  inputs_.setup.model->decoder.ranks().meet()
      ? answer()
      : collectives::at_root(inputs_.ranks(), "answers to questions", answer);
  metrics_.note(progress_.step, {}, {{"eval/exact_match", result}});
  inputs_.log(fmt::format("exact match {} training: {:.1f} % of {} held-out questions ({})", when,
                          100 * result, answers_.size(), format_duration(seconds_now() - start)));
}

void Learner::stop(const std::string& reason, bool by_data) {
  update_.drop();
  stopped_ = true;
  diverged_ = !by_data;
  stop_reason_ = reason;
}

}  // namespace temper::recipes
