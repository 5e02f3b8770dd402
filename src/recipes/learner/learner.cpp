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

// An update that would read the data many times over is a mistake, and takes memory for all of it.
void check_update_size(const RunConfig& config, const data::Mixture& rows) {
  constexpr int64_t kMost = 100;
  const bool by_tokens = config.train.tokens_per_step > 0;
  const int64_t size = by_tokens ? config.train.tokens_per_step : config.train.rows_per_step;
  // An epoch has at least one packed row, and rows that are kept have a token each: most need no estimate.
  const int64_t surely = by_tokens ? rows.size() : 1;
  if (recipe_of(config).updates_per_epoch != nullptr || size <= kMost * surely) return;
  const double updates = data::estimate_steps_per_epoch(rows, loader_options(config));
  if (updates <= 0 || updates * kMost >= 1) return;  // of no row that can be used, training tells why
  fail(
      "[train.{}] is {}, but an epoch has about {:.0f} {}: one update would read the data {:.0f} times; set "
      "it to "
      "{:.0f} or less",
      by_tokens ? "tokens_per_step" : "rows_per_step", size, updates * static_cast<double>(size),
      by_tokens ? "tokens" : "rows", 1 / updates, updates * static_cast<double>(size));
}

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
    : setup_(&setup), config_(std::move(config)), files_{config_.output}, data_(std::move(data)) {
  if (config_.eval.exact_match > 0 && !data_.eval)
    fail("[eval.exact_match] is set, but {} gives rows to ask from",
         is_adapter()
             ? fmt::format("neither adapters.{}.eval nor data.eval_fraction (data.eval is of adapters that "
                           "have no train)",
                           name())
             : "neither data.eval nor data.eval_fraction");
  check_update_size(config_, data_.train);
}

// Estimated once: that reads rows.
int64_t Learner::total_steps() const {
  if (config_.train.steps > 0) return config_.train.steps;
  if (!estimated_steps_) {
    const Recipe& recipe = recipe_of(config_);
    const double per_epoch = recipe.updates_per_epoch != nullptr
                                 ? recipe.updates_per_epoch(config_, data_)
                                 : data::estimate_steps_per_epoch(data_.train, loader_options(config_));
    const double steps = per_epoch * config_.train.passes();
    if (steps > kMostSteps)
      fail(
          "[train.epochs] is {}, which makes {:.3g} updates; at most {:.0g} are possible, ask for fewer "
          "epochs",
          config_.train.passes(), steps, kMostSteps);
    estimated_steps_ = std::max<int64_t>(1, std::llround(steps));
  }
  return *estimated_steps_;
}

double Learner::lr() const {
  const TrainConfig& train = config_.train;
  return training::Schedule{train.schedule.type, train.optimizer.lr, train.schedule.warmup_steps,
                            std::max<int64_t>(1, total_steps() - held_updates_),
                            train.schedule.final_fraction}
      .at(std::max<int64_t>(0, state_.step - held_updates_));
}

void Learner::warn_of_lengths() const {
  const TrainConfig& train = config_.train;
  if (train.steps > 0 && train.epochs) {
    // Both are the adapter's own or both are the run's: either of its own replaces both of those.
    const auto& adapters = setup_->config.adapters;
    const bool own = std::ranges::any_of(adapters, [&](const AdapterConfig& adapter) {
      return is_adapter() && adapter.name == name() && adapter.epochs;
    });
    log_warning_once(fmt::format("[{}] is {}, and has no effect: steps is {}; leave one of them out",
                                 own ? fmt::format("adapters.{}.epochs", name()) : "train.epochs",
                                 *train.epochs, train.steps));
  }
  const int64_t warmup = config_.train.schedule.warmup_steps;
  if (warmup <= total_steps()) return;
  log_warning(fmt::format(
      "[{}] is {}, but the run has {} updates: the learning rate never reaches its peak; set fewer",
      is_adapter() ? fmt::format("adapters.{}.warmup_steps", name()) : "train.schedule.warmup_steps", warmup,
      total_steps()));
}

void Learner::log(const std::string& message) const {
  log_info(is_adapter() ? fmt::format("[{}] {}", name(), message) : message);
}

void Learner::build() { build_with(recipe_of(config_).objective); }

void Learner::build_to_measure() {
  const Recipe& recipe = recipe_of(config_);
  build_with(recipe.measured != nullptr ? recipe.measured : recipe.objective);
}

void Learner::build_with(Recipe::MakeObjective make_objective) {
  make_adapter();
  if (make_objective != nullptr) objective_ = make_objective({*setup_, config_, data_, files_});
  make_trainer();
}

void Learner::make_adapter() {
  if (!is_adapter()) return;
  const models::Model& model = *setup_->model;
  const AdapterConfig& given = config_.adapters.front();
  const AdapterChoice choice = choose_adapter(given, model.decoder.parameters().table());
  adapter_ = given.from.empty()
                 ? models::new_adapter(model, choice.lora, static_cast<uint64_t>(config_.train.seed), "")
                 : models::load_adapter(model, source_of(given));
  adapter_->set_dropout(choice.lora.dropout);
  log(fmt::format("adapter: {} modules, {:.2f} M parameters", adapter_->plan().targets.size(),
                  static_cast<double>(adapter_->parameters().num_elements()) / 1e6));
}

void Learner::make_trainer() {
  models::Model& model = *setup_->model;
  layers::ParameterStore& trained = adapter_ ? adapter_->parameters() : model.decoder.parameters();
  optimizer_ = std::make_unique<optimizers::AdamW>(trained, model.decoder.ops(), adamw_options(config_.train),
                                                   setup_->groups->sharing());
  const training::TrainerOptions options =
      trainer_options(config_, model.decoder, data_.train.members().size());
  balance_factor_ = options.routers.balance_factor;
  if (!adapter_)
    trainer_ =
        std::make_unique<training::Trainer>(model.decoder, *optimizer_, options, objective_, data_ranks());
}

void Learner::start() {
  const Recipe& recipe = recipe_of(config_);
  std::optional<RolloutWish> rollouts;
  if (recipe.rollouts != nullptr) rollouts = recipe.rollouts(config_);
  ending_ = taught_ending(data_.train, setup_->text, rollouts ? &*rollouts : nullptr);
  if (const auto wish = recipe.critic(config_)) held_updates_ = wish->warmup_updates;
  if (recipe.batches != nullptr) {
    batches_ = recipe.batches({*setup_, config_, data_, files_, adapter_.get()});
  } else {
    batches_ = std::make_unique<LoadedBatches>(data_.train, loader_options(config_), ranks(), data_ranks());
    if (data_.eval) read_eval_rows();
  }
  owner_of_states_ = checkpoints::owner_of_states(ranks());
  const bool resumed = restore();
  if (!resumed) state_.started = utc_now();
  if (!resumed && !is_adapter() && !read_calibration(*setup_, files_.calibration()))
    calibrate_quantizers(
        setup_->model->decoder, config_,
        [&] {
          return rows_to_calibrate({{config_, data_}}, config_.quantize.calibration_rows);
        },
        ranks(), data_ranks());
  collectives::at_root(ranks(), "opening metrics", [&](const collectives::Root& root) {
    metrics_.emplace(root, files_.metrics(), resumed ? state_.step : -1, owes_evaluation_);
    events_.emplace(root, files_.events(), state_.step + 1);
  });
  if (config_.eval.exact_match > 0 && state_.accuracy_before < 0) ask("before", state_.accuracy_before);
  was_finished_ = is_done() && !owes_evaluation_;
  if (was_finished_)
    accuracy_after_ =
        ranks().gather("answers of before", is_root() ? known_accuracy(files_, config_) : -1).front();
  warn_of_lengths();
}

void Learner::read_eval_rows() {
  eval_rows_ = shared_rows("rows of the evaluation", [&] { return read_all(*data_.eval, config_); });
}

std::vector<data::PackedRow> Learner::shared_rows(
    std::string_view name, const std::function<std::vector<data::PackedRow>()>& read) const {
  return training::shared_rows(ranks(), data_ranks(), name, read);
}

void Learner::read_batch() {
  const trace::Span span("data");
  if (!begun_) {
    last_report_ = seconds_now();
    last_rollouts_ = setup_->phases->rollout_seconds();
  }
  const double waited = batches_->seconds_waited();
  read_at_ = objective_ && is_root() ? batches_->state() : Json();
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
  if (objective_) objective_->check(batch_.rows, data_ranks());
}

training::PendingStep Learner::begin_alone() { return trainer_->begin(batch_.rows, lr()); }

training::AdapterShare Learner::share() const {
  return {adapter_.get(),
          optimizer_.get(),
          &batch_.rows,
          lr(),
          static_cast<uint64_t>(config_.train.seed),
          data_.train.members().size(),
          objective_.get()};
}

void Learner::begun(training::PendingStep pending) {
  const double rate = lr();
  begun_ = Begun{std::move(pending), ++state_.step, rate, data_wait_, batch_.progress};
  batches_->add_metrics(begun_->values, begun_->scalars);
}

std::optional<Learner::Report> Learner::report(double peak_flops) {
  if (!begun_) return std::nullopt;
  Begun begun = std::move(*begun_);
  begun_.reset();
  Report report{begun.pending.wait(), begun.step, total_steps(), begun.lr, begun.data_wait, begun.epoch};
  report.values = std::move(begun.values);
  report.scalars = std::move(begun.scalars);
  recipe_of(config_).judge(config_, report.result);
  state_.tokens += report.result.tokens;
  state_.last_loss = report.result.loss;
  const double now = seconds_now();
  report.seconds = now - std::exchange(last_report_, now);
  const double rollouts = setup_->phases->rollout_seconds();
  const double rolled = rollouts - std::exchange(last_rollouts_, rollouts);
  if (setup_->phases->has_rollouts()) report.update_seconds = report.seconds - rolled;
  state_.train_seconds += report.seconds;
  report.train_seconds = state_.train_seconds;
  setup_->kept_errors->at_root(
      [&](const collectives::Root& root) { write_metrics(root, report, peak_flops); });
  return report;
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
  parallel::check_replicas(ranks(), held, state_.step);
}

void Learner::ask(const char* when, double& result) {
  const double start = seconds_now();
  const auto answer = [&] {
    answers_ = answer_questions(*setup_, config_, *data_.eval, adapter_.get(), ending_);
    result = accuracy(answers_);
  };
  setup_->model->decoder.ranks().meet() ? answer()
                                        : collectives::at_root(ranks(), "answers to questions", answer);
  note({}, {{"eval/exact_match", result}});
  log(fmt::format("exact match {} training: {:.1f} % of {} held-out questions ({})", when, 100 * result,
                  answers_.size(), format_duration(seconds_now() - start)));
}

void Learner::stop(const std::string& reason, bool by_data) {
  begun_.reset();
  stopped_ = true;
  diverged_ = !by_data;
  stop_reason_ = reason;
}

}  // namespace temper::recipes
