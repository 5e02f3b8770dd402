#include "recipes/verify_layout.h"

#include <algorithm>
#include <cmath>
#include <mutex>

#include "base/error.h"
#include "base/threads.h"
#include "checkpoints/hf_folder.h"
#include "checkpoints/placed_tensors.h"
#include "collectives/launch.h"
#include "data/answers.h"
#include "models/adapter.h"
#include "models/model.h"
#include "ops/resolve.h"
#include "recipes/adapter_config.h"
#include "recipes/mesh.h"
#include "recipes/mesh_groups.h"
#include "recipes/recipe.h"
#include "training/adapter_trainer.h"
#include "training/gather_rows.h"
#include "training/trainer.h"

namespace temper::recipes {
namespace {

constexpr int64_t kVocabulary = 512, kRows = 16;
constexpr double kRate = 1e-4;
// Far above the rounding of gradients: AdamW would make a whole step of one that is nothing but rounding.
constexpr double kEps = 1e-6;
// The largest differences that rounding explains, relative to one rank: of the first loss, of later losses
// and norms of gradients, and of gradients to the largest of a parameter.
struct Limits {
  double first_loss = 1e-6, later_losses = 1e-5, norms = 1e-5, gradients = 5e-5;
};
// In bfloat16 a token on the edge may choose another expert, whose gradient then is another.
constexpr Limits kFloat32, kBFloat16{1e-2, 1e-2, 1e-2, INFINITY};

// One layer of each kind that the file lists, and two where it lists none.
std::vector<size_t> chosen_layers(const Json& config) {
  std::vector<size_t> chosen;
  if (const Json* types = config.find("layer_types"); types != nullptr && types->is_array()) {
    const Json::Array& all = types->as_array();
    for (size_t i = 0; i < all.size(); ++i)
      if (std::none_of(chosen.begin(), chosen.end(), [&](size_t other) { return all[other] == all[i]; }))
        chosen.push_back(i);
  }
  const auto layers = static_cast<size_t>(config.at("num_hidden_layers").as_int());
  for (size_t i = 0; chosen.size() < std::min<size_t>(2, layers); ++i)
    if (std::find(chosen.begin(), chosen.end(), i) == chosen.end()) chosen.push_back(i);
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

// Lists with an entry for each layer keep those of the chosen ones.
Json small_copy(const Json& config) {
  const std::vector<size_t> chosen = chosen_layers(config);
  const auto layers = static_cast<size_t>(config.at("num_hidden_layers").as_int());
  Json small = config;
  for (const auto& [key, value] : config.as_object()) {
    if (!value.is_array() || value.as_array().size() != layers) continue;
    Json::Array kept;
    for (const size_t i : chosen) kept.push_back(value.as_array()[i]);
    small.set(key, kept);
  }
  small.set("num_hidden_layers", static_cast<int64_t>(chosen.size()));
  // A mixture behind dense layers keeps one of each.
  if (const Json* dense = config.find("first_k_dense_replace"); dense != nullptr && dense->is_number())
    small.set("first_k_dense_replace", std::min<int64_t>(dense->as_int(), 1));
  if (config.at("vocab_size").as_int() > kVocabulary) {
    small.set("vocab_size", kVocabulary);
    for (const char* id : {"bos_token_id", "eos_token_id", "pad_token_id"})
      if (config.find(id) != nullptr) small.set(id, Json());
  }
  return small;
}

class RowMaker {
 public:
  RowMaker(int64_t vocabulary, uint32_t seed) : vocabulary_(vocabulary), seed_(seed) {}

  std::vector<data::PackedRow> rows(data::Goal goal) {
    std::vector<data::PackedRow> rows(kRows);
    for (data::PackedRow& row : rows)
      for (const int64_t length : {3 + random(20), 5 + random(9)}) {
        const size_t before = row.ids.size();
        data::compares(goal) ? add_answers(row, length, goal) : add_document(row, length);
        row.document_lengths.push_back(std::ssize(row.ids) - static_cast<int64_t>(before));
        row.sources.push_back(0);
      }
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
  // A prompt of so many tokens and the answers to it: two, or one that is judged.
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

  int64_t vocabulary_;
  uint32_t seed_;
};

training::TrainerOptions options_of(const RunConfig& run, const layers::Decoder& model) {
  training::TrainerOptions options{.max_grad_norm = run.train.max_grad_norm,
                                   .micro_batch_tokens = 64,
                                   .checkpointing = run.train.activation_checkpointing,
                                   .z_loss = run.train.z_loss};
  if (!run.adapters.empty()) return options;
  options.routers.balance_factor = run.train.router.balance_loss.value_or(model.config().balance_factor);
  options.routers.global_balance = true;  // others depend on what ranks compute at once
  return options;
}

// What a rank trains: a copy of the run's model, or the run's adapters of one.
class Trial {
 public:
  Trial(const Json& model, const RunConfig& run, DType dtype, const MeshGroups& groups)
      : run_(run), data_(groups.data()), model_(build(model, run, dtype, groups)) {
    const Recipe& recipe = recipe_of(run);
    if (recipe.second_model(run)) second_ = build(model, run, dtype, groups);
    if (recipe.rehearsed != nullptr)
      objective_ = recipe.rehearsed(run, model_->decoder, second_ ? &second_->decoder : nullptr);
    const int64_t vocabulary = model.at("vocab_size").as_int();
    const auto rows = [&](uint32_t seed) {
      return training::rows_of_rank(RowMaker(vocabulary, seed).rows(recipe.rows(run).goal), data_.rank(),
                                    data_.size());
    };
    const auto options = options_of(run, model_->decoder);
    if (run.adapters.empty()) {
      whole_ = {"", nullptr, optimizer(model_->decoder.parameters(), groups), rows(20)};
      trainer_ =
          std::make_unique<training::Trainer>(model_->decoder, *whole_.optimizer, options, objective_, data_);
      return;
    }
    for (const AdapterConfig& given : run.adapters) {
      const AdapterChoice choice = choose_adapter(given, model_->decoder.parameters().table());
      auto weights = models::new_adapter(*model_, choice.lora, static_cast<uint64_t>(run.train.seed), "");
      weights->set_dropout(choice.lora.dropout);
      auto learner = optimizer(weights->parameters(), groups);
      adapters_.push_back({given.name + ": ", std::move(weights), std::move(learner),
                           rows(20 + static_cast<uint32_t>(adapters_.size()))});
    }
    adapter_trainer_ = std::make_unique<training::AdapterTrainer>(model_->decoder, options, data_);
  }

  // The results of one update, by what is trained.
  std::vector<training::StepResult> step() {
    if (trainer_) {
      if (objective_) objective_->check(whole_.rows, data_);
      return {trainer_->step(whole_.rows, kRate)};
    }
    std::vector<training::AdapterShare> shares;
    for (const Trained& one : adapters_) {
      if (objective_) objective_->check(one.rows, data_);
      shares.push_back({.adapter = one.adapter.get(),
                        .optimizer = one.optimizer.get(),
                        .rows = &one.rows,
                        .lr = kRate,
                        .seed = static_cast<uint64_t>(run_.train.seed),
                        .objective = objective_.get()});
    }
    std::vector<training::StepResult> results;
    for (training::PendingStep& pending : adapter_trainer_->begin(shares)) results.push_back(pending.wait());
    return results;
  }

  // Calls f(name, the rank's part) for every trained parameter's gradient of the last update.
  template <class F>
  void for_each_gradient(const F& f) const {
    for_each([&](const Trained& one) {
      for (const PlacedTensor& gradient : one.optimizer->summed_gradients()) f(one.name, gradient);
    });
  }
  template <class F>
  void for_each_weight(const F& f) const {
    for_each([&](const Trained& one) {
      const layers::ParameterStore& parameters =
          one.adapter ? one.adapter->parameters() : model_->decoder.parameters();
      for (const PlacedTensor& held : parameters.placed()) f(one.name, held);
    });
  }

 private:
  struct Trained {
    std::string name;                          // in front of those of its parameters
    std::unique_ptr<layers::Adapter> adapter;  // null: the model itself
    std::unique_ptr<optimizers::AdamW> optimizer;
    std::vector<data::PackedRow> rows;
  };

  static std::unique_ptr<models::Model> build(const Json& config, const RunConfig& run, DType dtype,
                                              const MeshGroups& groups) {
    models::BuildOptions build;
    build.dtype = dtype;
    build.ops = run.model.ops_implementation.to_ops();
    build.purpose = models::Purpose::kTraining;
    build.ranks = groups.model();
    auto model = models::build_model(config, run.model.path, build);
    model->decoder.parameters().initialize(static_cast<uint64_t>(run.train.seed), 0.02);
    return model;
  }
  std::unique_ptr<optimizers::AdamW> optimizer(layers::ParameterStore& trained, const MeshGroups& groups) {
    return std::make_unique<optimizers::AdamW>(trained, model_->decoder.ops(),
                                               optimizers::AdamWOptions{.eps = kEps}, groups.sharing());
  }
  template <class F>
  void for_each(const F& f) const {
    if (trainer_) return f(whole_);
    for (const Trained& one : adapters_) f(one);
  }

  const RunConfig& run_;
  collectives::Group& data_;
  std::unique_ptr<models::Model> model_, second_;
  Recipe::Objective objective_;
  Trained whole_;
  std::vector<Trained> adapters_;
  std::unique_ptr<training::Trainer> trainer_;
  std::unique_ptr<training::AdapterTrainer> adapter_trainer_;
};

// What one rank's training gives after each update.
struct Course {
  std::vector<std::vector<training::StepResult>> results;
  std::vector<std::vector<Tensor>> gradients, weights;  // [updates][parameters], whole
};

Course train_alone(const Json& model, const RunConfig& run, const VerifyOptions& options) {
  const MeshGroups groups(collectives::alone(), {});
  Trial trial(model, run, options.dtype, groups);
  Course course;
  for (int64_t update = 0; update < options.updates; ++update) {
    course.results.push_back(trial.step());
    const auto keep = [](std::vector<Tensor>& all) {
      return [&all](const std::string&, const PlacedTensor& held) {
        all.push_back(held.own.to(DType::kF32).clone());
      };
    };
    trial.for_each_gradient(keep(course.gradients.emplace_back()));
    trial.for_each_weight(keep(course.weights.emplace_back()));
  }
  return course;
}

// The largest differences from one rank.
struct Worst {
  double first_loss = 0, later_losses = 0, norms = 0, gradients = 0, weights = 0;
  std::string gradient = {};  // the parameter
  std::string other = {};     // what is not the same at all

  void add(const Worst& from) {
    first_loss = std::max(first_loss, from.first_loss);
    later_losses = std::max(later_losses, from.later_losses);
    norms = std::max(norms, from.norms);
    weights = std::max(weights, from.weights);
    if (other.empty()) other = from.other;
    if (from.gradients <= gradients) return;
    gradients = from.gradients;
    gradient = from.gradient;
  }
  bool within(const Limits& limits) const {
    return first_loss <= limits.first_loss && later_losses <= limits.later_losses && norms <= limits.norms &&
           gradients <= limits.gradients && other.empty();
  }
};

// The largest difference, as a part of the largest number.
double difference(const Tensor& tensor, const Tensor& expected) {
  const Tensor found = tensor.to(DType::kF32);
  double worst = 0, largest = 1e-12;
  for (int64_t i = 0; i < found.numel(); ++i) {
    const double number = expected.data<float>()[i], apart = std::abs(found.data<float>()[i] - number);
    if (!std::isfinite(apart)) return INFINITY;
    worst = std::max(worst, apart);
    largest = std::max(largest, std::abs(number));
  }
  return worst / largest;
}

double apart(double found, double expected) {
  return std::isfinite(found) ? std::abs(found - expected) / std::max(std::abs(expected), 1e-12) : INFINITY;
}

Worst compare(const training::StepResult& found, const training::StepResult& expected, bool first) {
  Worst worst{.norms = apart(found.grad_norm, expected.grad_norm)};
  (first ? worst.first_loss : worst.later_losses) = apart(found.loss, expected.loss);
  if (found.tokens != expected.tokens || found.target_tokens != expected.target_tokens)
    worst.other = fmt::format("{} tokens and {} targets, where one rank has {} and {}", found.tokens,
                              found.target_tokens, expected.tokens, expected.target_tokens);
  return worst;
}

// Trains on these ranks, beside what one rank gave.
Worst train_beside(const Json& model, const RunConfig& run, DType dtype, collectives::Group& ranks,
                   const Mesh& mesh, const Course& expected) {
  const MeshGroups groups(ranks, mesh);
  Trial trial(model, run, dtype, groups);
  Worst worst;
  for (size_t update = 0; update < expected.results.size(); ++update) {
    const std::vector<training::StepResult> results = trial.step();
    for (size_t i = 0; i < results.size(); ++i)
      worst.add(compare(results[i], expected.results[update][i], update == 0));
    size_t at = 0;
    trial.for_each_gradient([&](const std::string& name, const PlacedTensor& held) {
      worst.add(
          {.gradients = difference(checkpoints::whole_of(held, ranks), expected.gradients[update][at++]),
           .gradient = name + held.name});
    });
    at = 0;
    trial.for_each_weight([&](const std::string&, const PlacedTensor& held) {
      worst.add({.weights = difference(checkpoints::whole_of(held, ranks), expected.weights[update][at++])});
    });
  }
  return worst;
}

}  // namespace

std::string verify_layout(const RunConfig& config, const VerifyOptions& options) {
  const Mesh mesh = mesh_of(config.parallel, options.ranks);
  check_recipe(config);
  check_mesh(mesh, models::configure(checkpoints::read_model_config(config.model.path), config.model.path),
             config);
  const Json small = small_copy(checkpoints::read_model_config(config.model.path));
  set_num_threads(std::max(1, num_threads() / options.ranks));  // ranks share the cores
  const Course expected = train_alone(small, config, options);
  std::mutex mutex;
  Worst worst;
  collectives::launch("threads", {.ranks = options.ranks}, [&](collectives::Group& all) {
    const Worst own = train_beside(small, config, options.dtype, all, mesh, expected);
    const std::lock_guard lock(mutex);
    worst.add(own);
  });
  const Limits& limits = options.dtype == DType::kF32 ? kFloat32 : kBFloat16;
  const auto line = [](const char* name, double found, double limit) {
    return fmt::format("\n{:16}{:.1e}{}", name, found,
                       std::isfinite(limit) ? fmt::format("  (at most {:.0e})", limit) : "");
  };
  std::string report = fmt::format(
      "{} ranks: {}; {} layers of {} in {}, {} updates, beside one rank:", options.ranks, to_string(mesh),
      small.at("num_hidden_layers").as_int(), config.model.path, to_string(options.dtype), options.updates);
  report += line("first loss", worst.first_loss, limits.first_loss) +
            line("later losses", worst.later_losses, limits.later_losses) +
            line("gradient norms", worst.norms, limits.norms) +
            line("gradients", worst.gradients, limits.gradients);
  if (!worst.gradient.empty())
    report += fmt::format(", of the largest of a parameter, in {}", worst.gradient);
  report += line("weights", worst.weights, INFINITY);
  if (!worst.other.empty()) report += "\nnot the same    " + worst.other;
  if (!worst.within(limits))
    throw Error(fmt::format("[verify-layout] the layout trains something else than one rank:\n{}", report),
                ErrorKind::kDefect);
  return report;
}

}  // namespace temper::recipes
