#include "recipes/commands/verify_layout.h"

#include <algorithm>
#include <cmath>
#include <mutex>

#include "base/error.h"
#include "base/threads/threads.h"
#include "checkpoints/states/placed_tensors.h"
#include "collectives/launch.h"
#include "models/folder_config.h"
#include "models/model.h"
#include "parallel/mesh_groups.h"
#include "parallel/replicas.h"
#include "recipes/commands/layout_trial.h"
#include "recipes/keys/recipe.h"
#include "recipes/plans/mesh.h"

namespace temper::recipes {
namespace {

constexpr int64_t kVocabulary = 512;
// The largest differences that rounding explains, relative to one rank: of the first loss, of later losses
// and norms of gradients, and of gradients to the largest of a parameter.
struct Limits {
  double first_loss = 1e-6, later_losses = 1e-5, norms = 1e-5, gradients = 5e-5;
};
// In bfloat16 a token on the edge may choose another expert, whose gradient then is another.
constexpr Limits kFloat32, kBFloat16{1e-2, 1e-2, 1e-2, INFINITY};

// One layer of each kind that the file lists, and two where it lists none, or `least` where stages need more.
std::vector<size_t> chosen_layers(const Json& config, size_t least) {
  std::vector<size_t> chosen;
  if (const Json* types = config.find("layer_types"); types != nullptr && types->is_array()) {
    const Json::Array& all = types->as_array();
    for (size_t i = 0; i < all.size(); ++i)
      if (std::none_of(chosen.begin(), chosen.end(), [&](size_t other) { return all[other] == all[i]; }))
        chosen.push_back(i);
  }
  const auto layers = static_cast<size_t>(config.at("num_hidden_layers").as_int());
  for (size_t i = 0; chosen.size() < std::min<size_t>(std::max<size_t>(2, least), layers); ++i)
    if (std::find(chosen.begin(), chosen.end(), i) == chosen.end()) chosen.push_back(i);
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

// Lists with an entry for each layer keep those of the chosen ones.
Json small_copy(const Json& config, int64_t least_layers) {
  const std::vector<size_t> chosen = chosen_layers(config, static_cast<size_t>(least_layers));
  const auto layers = static_cast<size_t>(config.at("num_hidden_layers").as_int());
  Json small = config;
  for (const auto& [key, value] : config.as_object()) {
    if (!value.is_array() || value.as_array().size() != layers) continue;
    Json::Array kept;
    for (const size_t i : chosen) kept.push_back(value.as_array()[i]);
    small.set(key, kept);
  }
  small.set("num_hidden_layers", static_cast<int64_t>(chosen.size()));
  // A mixture behind dense layers keeps one of each; where all are dense, all stay so.
  if (const Json* dense = config.find("first_k_dense_replace");
      dense != nullptr && dense->is_number() && dense->as_int() < static_cast<int64_t>(layers))
    small.set("first_k_dense_replace", std::min<int64_t>(dense->as_int(), 1));
  if (config.at("vocab_size").as_int() > kVocabulary) {
    small.set("vocab_size", kVocabulary);
    for (const char* id : {"bos_token_id", "eos_token_id", "pad_token_id"})
      if (config.find(id) != nullptr) small.set(id, Json());
  }
  return small;
}

// What one rank's training gives after each update.
struct Course {
  std::vector<std::vector<training::StepResult>> results;
  std::vector<std::string> trained;                     // the parameters that have gradients
  std::vector<std::vector<Tensor>> gradients, weights;  // [updates][parameters], whole
};

Course train_alone(const Json& model, const RunConfig& run, const VerifyOptions& options) {
  const parallel::MeshGroups groups(collectives::alone(), {});
  LayoutTrial trial(model, run, options.dtype, groups);
  Course course;
  for (int64_t update = 0; update < options.updates; ++update) {
    course.results.push_back(trial.step());
    const auto keep = [](const std::vector<PlacedTensor>& all) {
      std::vector<Tensor> kept;
      for (const PlacedTensor& held : all) kept.push_back(held.own.to(DType::kF32).clone());
      return kept;
    };
    course.trained.clear();
    for (const PlacedTensor& gradient : trial.gradients()) course.trained.push_back(gradient.name);
    course.gradients.push_back(keep(trial.gradients()));
    course.weights.push_back(keep(trial.weights()));
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

Worst compare_gradients(const std::vector<PlacedTensor>& gradients, collectives::Group& ranks,
                        const Course& expected, size_t update) {
  Worst worst;
  for (size_t i = 0; i < gradients.size(); ++i)
    worst.add(
        {.gradients = difference(checkpoints::whole_of(gradients[i], ranks), expected.gradients[update][i]),
         .gradient = gradients[i].name});
  return worst;
}

// Each rank compares what it holds: the others may not have the parameter. All together have all of them.
Worst compare_gradients_of_stages(const std::vector<PlacedTensor>& gradients, collectives::Group& ranks,
                                  const Course& expected, size_t update) {
  Worst worst;
  std::vector<uint8_t> found(expected.trained.size());
  for (const PlacedTensor& gradient : gradients) {
    const auto place =
        static_cast<size_t>(std::ranges::find(expected.trained, gradient.name) - expected.trained.begin());
    const Tensor& whole = expected.gradients[update].at(place);
    const Tensor filled = whole.clone();  // with what one rank has where another one holds it
    put_part(*gradient.placement, gradient.own.to(DType::kF32), gradient.placement->part(), filled);
    found[place] = 1;
    worst.add({.gradients = difference(filled, whole), .gradient = gradient.name});
  }
  const std::vector<std::vector<uint8_t>> all =
      ranks.gather("gradients that a rank holds", std::span<const uint8_t>(found));
  for (size_t i = 0; i < found.size(); ++i)
    if (std::ranges::none_of(all, [&](const std::vector<uint8_t>& of_rank) { return of_rank[i] != 0; }))
      worst.other = fmt::format("no rank has the gradient of {}", expected.trained[i]);
  return worst;
}

// Trains on these ranks and compares with the results of one rank.
Worst train_and_compare(const Json& model, const RunConfig& run, DType dtype, collectives::Group& ranks,
                        const Mesh& mesh, const Course& expected) {
  const parallel::MeshGroups groups(ranks, mesh);
  LayoutTrial trial(model, run, dtype, groups);
  Worst worst;
  parallel::check_replicas(ranks, trial.held(), 0);
  for (size_t update = 0; update < expected.results.size(); ++update) {
    const std::vector<training::StepResult> results = trial.step();
    parallel::check_replicas(ranks, trial.held(), static_cast<int64_t>(update) + 1);
    for (size_t i = 0; i < results.size(); ++i)
      worst.add(compare(results[i], expected.results[update][i], update == 0));
    worst.add(groups.num_stages() == 1
                  ? compare_gradients(trial.gradients(), ranks, expected, update)
                  : compare_gradients_of_stages(trial.gradients(), ranks, expected, update));
    const std::vector<PlacedTensor> weights = trial.weights();
    for (size_t i = 0; i < weights.size(); ++i)
      worst.add(
          {.weights = difference(checkpoints::whole_of(weights[i], ranks), expected.weights[update][i])});
  }
  return worst;
}

}  // namespace

std::string verify_layout(const RunConfig& config, const VerifyOptions& options) {
  const Mesh mesh = mesh_of(config, options.ranks);
  check_recipe(config);
  const Json model = models::config_of_folder(config.model.path);
  check_mesh(mesh, models::configure(model, config.model.path), config);
  const int64_t stages = config.parallel.pipeline;
  const Json small = small_copy(models::text_config_of(model, config.model.path).json,
                                stages * config.parallel.pipeline_chunks);
  set_num_threads(std::max(1, num_threads() / options.ranks));  // ranks share the cores
  const Course expected = train_alone(small, config, options);
  std::mutex mutex;
  Worst worst;
  collectives::launch("threads", {.ranks = options.ranks}, [&](collectives::Group& all) {
    const Worst own = train_and_compare(small, config, options.dtype, all, mesh, expected);
    const std::lock_guard lock(mutex);
    worst.add(own);
  });
  const Limits& limits = options.dtype == DType::kF32 ? kFloat32 : kBFloat16;
  const auto line = [](const char* name, double found, double limit) {
    return fmt::format("\n{:16}{:.1e}{}", name, found,
                       std::isfinite(limit) ? fmt::format("  (at most {:.0e})", limit) : "");
  };
  std::string report = fmt::format(
      "{} ranks: {}; {} layers of {} in {}, {} updates, compared with one rank:", options.ranks,
      stages > 1 ? fmt::format("pipeline {}, {}", stages, to_string(mesh)) : to_string(mesh),
      small.at("num_hidden_layers").as_int(), config.model.path, to_string(options.dtype), options.updates);
  report += line("first loss", worst.first_loss, limits.first_loss) +
            line("later losses", worst.later_losses, limits.later_losses) +
            line("gradient norms", worst.norms, limits.norms) +
            line("gradients", worst.gradients, limits.gradients);
  if (!worst.gradient.empty())
    report += fmt::format(", of the largest of a parameter, in {}", worst.gradient);
  report += line("weights", worst.weights, INFINITY);
  if (config.quantize.to_options().any())
    report +=
        "\nquantizers      left out: rounding would make a last bit as large as a step between two codes";
  if (!worst.other.empty()) report += "\nnot the same    " + worst.other;
  if (!worst.within(limits))
    throw Error(fmt::format("[verify-layout] the layout trains something else than one rank:\n{}", report),
                ErrorKind::kDefect);
  return report;
}

}  // namespace temper::recipes
