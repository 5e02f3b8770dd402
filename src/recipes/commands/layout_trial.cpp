#include "recipes/commands/layout_trial.h"

#include <cmath>

#include "data/rows/answers.h"
#include "models/adapter.h"
#include "ops/resolve.h"
#include "recipes/keys/adapter_config.h"
#include "recipes/plans/pipeline_checks.h"
#include "training/objectives/gather_rows.h"

namespace temper::recipes {
namespace {

constexpr int64_t kRows = 16, kMicroBatchTokens = 64;
constexpr double kRate = 1e-4;
// Far above the rounding of gradients: AdamW would make a whole step of one that is nothing but rounding.
constexpr double kEps = 1e-6;

class RowMaker {
 public:
  RowMaker(int64_t vocabulary, uint32_t seed) : vocabulary_(vocabulary), seed_(seed) {}

  // `sampled`: with what recipes know of answers that a model gave.
  std::vector<data::PackedRow> rows(data::Goal goal, bool sampled) {
    std::vector<data::PackedRow> rows(kRows);
    for (data::PackedRow& row : rows)
      for (const int64_t length : {3 + random(20), 5 + random(9)}) {
        const size_t before = row.ids.size();
        data::compares(goal) ? add_answers(row, length, goal) : add_document(row, length);
        row.document_lengths.push_back(std::ssize(row.ids) - static_cast<int64_t>(before));
        row.sources.push_back(0);
      }
    if (sampled)
      for (data::PackedRow& row : rows) add_sampled(row);
    return rows;
  }

 private:
  int32_t random(int64_t below) {
    seed_ = seed_ * 1664525 + 1013904223;
    return static_cast<int32_t>(static_cast<int64_t>(seed_ >> 8) % below);
  }
  // Some without a target in many tokens.
  void add_document(data::PackedRow& row, int64_t length) {
    for (int64_t i = 0; i < length; ++i) {
      row.ids.push_back(random(vocabulary_));
      row.targets.push_back(i + 1 < length && random(3) > 0 ? random(vocabulary_) : data::kIgnore);
    }
  }
  // A prompt of `prompt` tokens and the answers to it: two, or one that is judged.
  void add_answers(data::PackedRow& row, int64_t prompt, data::Goal goal) {
    for (int64_t i = 0; i < prompt; ++i) {
      row.ids.push_back(random(vocabulary_));
      row.targets.push_back(data::kIgnore);
    }
    std::vector<data::Answer>& answers = row.answers.emplace_back();
    const auto add = [&](bool good) {
      const int64_t length = 2 + random(9);
      for (int64_t i = 0; i < length; ++i) {
        row.ids.push_back(random(vocabulary_));
        row.targets.push_back(i + 1 < length ? random(vocabulary_) : data::kIgnore);
      }
      answers.push_back({length, good});
    };
    if (goal == data::Goal::kJudgments) return add(random(2) == 0);
    add(true);
    add(false);
  }

  // Of the weights that are trained, some better and some worse than others, whose sum is not nothing; the
  // rollout and the reference thought a little otherwise of them.
  void add_sampled(data::PackedRow& row) {
    const float even = -std::log(static_cast<float>(vocabulary_));
    const auto about = [&] { return even + static_cast<float>(random(100)) / 100 - 0.5F; };
    for (int64_t i = 0; i < row.num_targets(); ++i) {
      row.sampled.advantages.push_back(static_cast<float>(random(200)) / 100 - 0.5F);
      row.sampled.reference_log_probs.push_back(about());
      row.sampled.rollout_log_probs.push_back(about());
    }
  }

  int64_t vocabulary_;
  uint32_t seed_;
};

training::TrainerOptions options_of(const RunConfig& run, const layers::Decoder& model) {
  training::TrainerOptions options{.max_grad_norm = run.train.max_grad_norm,
                                   .micro_batch_tokens = kMicroBatchTokens,
                                   .checkpointing = run.train.compute.activation_checkpointing,
                                   .z_loss = run.train.z_loss,
                                   .pipeline = run.parallel.schedule()};
  if (!run.adapters.empty()) return options;
  options.routers.balance_factor = run.train.router.balance_loss.value_or(model.config().balance_factor);
  options.routers.bias_rate = run.train.router.bias_rate;
  options.routers.global_balance = true;  // others depend on what ranks compute at once
  return options;
}

std::unique_ptr<models::Model> build(const Json& config, const RunConfig& run, DType dtype,
                                     const parallel::MeshGroups& groups, int64_t seed) {
  models::BuildOptions build;
  build.dtype = dtype;
  build.ops = run.model.ops_implementation.to_ops();
  build.purpose = models::Purpose::kTraining;
  build.ranks = model_ranks(groups, models::configure(config, run.model.path), run, {});
  auto model = models::build_model(config, run.model.path, build);
  model->decoder.parameters().initialize(static_cast<uint64_t>(seed), 0.02);
  return model;
}

void append(std::vector<PlacedTensor>& all, const std::string& name, std::vector<PlacedTensor> tensors) {
  for (PlacedTensor& tensor : tensors) {
    tensor.name = name + tensor.name;
    all.push_back(std::move(tensor));
  }
}

}  // namespace

LayoutTrial::LayoutTrial(const Json& model, const RunConfig& run, DType dtype,
                         const parallel::MeshGroups& groups)
    : run_(run), ranks_(groups.update()), model_(build(model, run, dtype, groups, run.train.seed)) {
  const Recipe& recipe = recipe_of(run);
  // Of a teacher that says the same as the student, gradients are nothing but rounding.
  if (recipe.second_model(run)) second_ = build(model, run, dtype, groups, run.train.seed + 1);
  RunConfig own = run;  // with the passes of this trial
  own.train.compute.micro_batch_tokens = kMicroBatchTokens;
  if (recipe.rehearsed != nullptr)
    objective_ = recipe.rehearsed(own, model_->decoder, second_ ? &second_->decoder : nullptr);
  const int64_t vocabulary = model.at("vocab_size").as_int();
  const auto rows = [&](uint32_t seed) {
    return training::rows_of_rank(
        RowMaker(vocabulary, seed).rows(recipe.rows(run).goal, recipe.rollouts != nullptr),
        ranks_.rows.rank(), ranks_.rows.size());
  };
  const auto learner = [&](layers::ParameterStore& trained) {
    return std::make_unique<optimizers::AdamW>(trained, model_->decoder.ops(),
                                               optimizers::AdamWOptions{.eps = kEps}, groups.sharing());
  };
  const auto options = options_of(run, model_->decoder);
  if (run.adapters.empty()) {
    trained_.push_back({"", nullptr, learner(model_->decoder.parameters()), rows(20)});
    trainer_ = std::make_unique<training::Trainer>(model_->decoder, *trained_.front().optimizer, options,
                                                   objective_, ranks_);
    return;
  }
  for (const AdapterConfig& given : run.adapters) {
    const AdapterChoice choice = choose_adapter(given, model_->decoder.parameters().table());
    auto weights = models::new_adapter(*model_, choice.lora, static_cast<uint64_t>(run.train.seed), "");
    weights->set_dropout(choice.lora.dropout);
    auto optimizer = learner(weights->parameters());
    trained_.push_back({given.name + ": ", std::move(weights), std::move(optimizer),
                        rows(20 + static_cast<uint32_t>(trained_.size()))});
  }
  adapter_trainer_ = std::make_unique<training::AdapterTrainer>(model_->decoder, options, ranks_);
}

std::vector<training::StepResult> LayoutTrial::step() {
  if (objective_)
    for (const Trained& one : trained_) objective_->check(one.rows, ranks_.rows);
  if (trainer_) return {trainer_->step(trained_.front().rows, kRate)};
  std::vector<training::AdapterShare> shares;
  for (const Trained& one : trained_)
    shares.push_back({.adapter = one.adapter.get(),
                      .optimizer = one.optimizer.get(),
                      .rows = &one.rows,
                      .lr = kRate,
                      .seed = static_cast<uint64_t>(run_.train.seed),
                      .objective = objective_.get()});
  std::vector<training::StepResult> results;
  for (training::PendingStep& pending : adapter_trainer_->begin(shares)) results.push_back(pending.wait());
  return results;
}

std::vector<PlacedTensor> LayoutTrial::gradients() const {
  std::vector<PlacedTensor> all;
  for (const Trained& one : trained_) append(all, one.name, one.optimizer->summed_gradients());
  return all;
}

std::vector<PlacedTensor> LayoutTrial::weights() const {
  std::vector<PlacedTensor> all;
  for (const Trained& one : trained_)
    append(all, one.name, (one.adapter ? one.adapter->parameters() : model_->decoder.parameters()).placed());
  return all;
}

std::vector<PlacedTensor> LayoutTrial::held() const {
  std::vector<PlacedTensor> all = weights();
  for (const Trained& one : trained_) append(all, one.name, one.optimizer->state());
  return all;
}

}  // namespace temper::recipes
