#include "recipes/verify_layout.h"

#include <algorithm>
#include <cmath>
#include <mutex>

#include "base/error.h"
#include "checkpoints/hf_folder.h"
#include "checkpoints/placed_tensors.h"
#include "collectives/launch.h"
#include "models/model.h"
#include "ops/resolve.h"
#include "recipes/mesh.h"
#include "recipes/mesh_groups.h"
#include "training/gather_rows.h"
#include "training/trainer.h"

namespace temper::recipes {
namespace {

constexpr int kSteps = 3;
constexpr int64_t kVocabulary = 512, kRows = 16;
constexpr double kRate = 1e-4;
// Far above the rounding of gradients: AdamW would make a whole step of one that is nothing but rounding.
constexpr double kEps = 1e-6;
// Relative to one rank: of the first loss and of later ones, and of gradients to the largest of a parameter.
constexpr double kFirstLoss = 1e-6, kLaterLosses = 1e-5, kGradients = 5e-5;

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

// Documents of several lengths, some without a target in many tokens.
std::vector<data::PackedRow> rows_of(int64_t vocabulary) {
  uint32_t seed = 20;
  const auto random = [&](int64_t below) {
    seed = seed * 1664525 + 1013904223;
    return static_cast<int32_t>(static_cast<int64_t>(seed >> 8) % below);
  };
  std::vector<data::PackedRow> rows(kRows);
  for (data::PackedRow& row : rows)
    for (const int64_t length : {3 + random(20), 5 + random(9)}) {
      row.document_lengths.push_back(length);
      for (int64_t i = 0; i < length; ++i) {
        row.ids.push_back(random(vocabulary));
        row.targets.push_back(i + 1 < length && random(3) > 0 ? random(vocabulary) : data::kIgnore);
      }
    }
  return rows;
}

// What training gives after each update.
struct Course {
  std::vector<std::string> names;  // of the trained parameters
  std::vector<double> losses;
  std::vector<std::vector<Tensor>> gradients, weights;  // [steps][parameters], whole
};

Course train(const Json& config, const RunConfig& run, collectives::Group& ranks, const Mesh& mesh) {
  const MeshGroups groups(ranks, mesh);
  models::BuildOptions build;
  build.dtype = DType::kF32;
  build.ops = run.model.ops_implementation.to_ops();
  build.purpose = models::Purpose::kTraining;
  build.ranks = groups.model();
  const auto model = models::build_model(config, run.model.path, build);
  layers::ParameterStore& parameters = model->decoder.parameters();
  parameters.initialize(static_cast<uint64_t>(run.train.seed), 0.02);
  optimizers::AdamW optimizer(parameters, model->decoder.ops(), {.eps = kEps}, groups.sharing());
  training::TrainerOptions options{.micro_batch_tokens = 64,
                                   .checkpointing = run.train.activation_checkpointing};
  options.routers.balance_factor =
      run.train.router.balance_loss.value_or(model->decoder.config().balance_factor);
  options.routers.global_balance = true;  // others depend on what ranks compute at once
  training::Trainer trainer(model->decoder, optimizer, options, nullptr, groups.data());
  const std::vector<data::PackedRow> rows = training::rows_of_rank(
      rows_of(config.at("vocab_size").as_int()), groups.data().rank(), groups.data().size());
  Course course;
  for (int step = 0; step < kSteps; ++step) {
    course.losses.push_back(trainer.step(rows, kRate).loss);
    std::vector<Tensor>& gradients = course.gradients.emplace_back();
    course.names.clear();
    for (const PlacedTensor& gradient : optimizer.summed_gradients()) {
      course.names.push_back(gradient.name);
      gradients.push_back(checkpoints::whole_of(gradient, ranks).clone());
    }
    std::vector<Tensor>& weights = course.weights.emplace_back();
    for (const PlacedTensor& held : parameters.placed())
      weights.push_back(checkpoints::whole_of(held, ranks).clone());
  }
  return course;
}

// The largest differences from one rank.
struct Worst {
  double first_loss = 0, later_losses = 0, gradients = 0, weights = 0;
  std::string gradient = {};  // the parameter

  void add(const Worst& other) {
    first_loss = std::max(first_loss, other.first_loss);
    later_losses = std::max(later_losses, other.later_losses);
    weights = std::max(weights, other.weights);
    if (other.gradients <= gradients) return;
    gradients = other.gradients;
    gradient = other.gradient;
  }
};

// The largest difference, as a part of the largest number.
double difference(const Tensor& found, const Tensor& expected) {
  double worst = 0, largest = 1e-12;
  for (int64_t i = 0; i < found.numel(); ++i) {
    const double number = expected.data<float>()[i], apart = std::abs(found.data<float>()[i] - number);
    if (!std::isfinite(apart)) return INFINITY;
    worst = std::max(worst, apart);
    largest = std::max(largest, std::abs(number));
  }
  return worst / largest;
}

Worst compare(const Course& found, const Course& expected) {
  Worst worst;
  for (size_t step = 0; step < kSteps; ++step) {
    const double apart = std::abs(found.losses[step] / expected.losses[step] - 1);
    worst.add(step == 0 ? Worst{.first_loss = apart} : Worst{.later_losses = apart});
    for (size_t i = 0; i < found.names.size(); ++i)
      worst.add({.gradients = difference(found.gradients[step][i], expected.gradients[step][i]),
                 .gradient = found.names[i]});
    for (size_t i = 0; i < found.weights[step].size(); ++i)
      worst.add({.weights = difference(found.weights[step][i], expected.weights[step][i])});
  }
  return worst;
}

}  // namespace

std::string verify_layout(const RunConfig& config, int ranks) {
  const Mesh mesh = mesh_of(config.parallel, ranks);
  check_mesh(mesh, models::configure(checkpoints::read_model_config(config.model.path), config.model.path),
             config);
  const Json small = small_copy(checkpoints::read_model_config(config.model.path));
  const Course expected = train(small, config, collectives::alone(), {});
  std::mutex mutex;
  Worst worst;
  collectives::launch("threads", {.ranks = ranks}, [&](collectives::Group& all) {
    const Worst own = compare(train(small, config, all, mesh), expected);
    const std::lock_guard lock(mutex);
    worst.add(own);
  });
  const std::string report = fmt::format(
      "{} ranks: {}; {} layers of {}, {} updates, beside one rank:\n"
      "first loss      {:.1e}  (at most {:.0e})\nlater losses    {:.1e}  (at most {:.0e})\n"
      "gradients       {:.1e}  (at most {:.0e}, of the largest of a parameter){}\nweights         {:.1e}",
      ranks, to_string(mesh), small.at("num_hidden_layers").as_int(), config.model.path, kSteps,
      worst.first_loss, kFirstLoss, worst.later_losses, kLaterLosses, worst.gradients, kGradients,
      worst.gradient.empty() ? "" : ", in " + worst.gradient, worst.weights);
  if (!(worst.first_loss <= kFirstLoss && worst.later_losses <= kLaterLosses &&
        worst.gradients <= kGradients))
    throw Error(fmt::format("[verify-layout] the layout trains something else than one rank:\n{}", report),
                ErrorKind::kDefect);
  return report;
}

}  // namespace temper::recipes
