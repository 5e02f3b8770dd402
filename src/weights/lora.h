#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "weights/module_choice.h"
#include "weights/weight_table.h"

namespace temper {

// Which biases are trained besides.
enum class LoraBias : uint8_t { kNone, kAll, kLoraOnly /* of the adapted modules */ };

inline constexpr const char* kAllLinear = "all-linear";
inline constexpr std::string_view kAdapterPrefix = "base_model.model.";  // of all names in an adapter's file

// Low-rank adapters (Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021): an adapted
// module computes y + scale · B A x with A [rank, in] and B [out, rank]. scale = alpha / rank, or
// alpha / sqrt(rank) when stabilized (Kalajdzievski, "A Rank Stabilization Scaling Factor for Fine-Tuning
// with LoRA", 2023). The words and what they mean are those of PEFT's LoraConfig.
struct LoraConfig {
  int64_t rank = 8;
  double alpha = 8;
  bool stabilized = false;
  double dropout = 0;  // of what A reads, while training
  LoraBias bias = LoraBias::kNone;
  ModuleChoice targets{.names = {kAllLinear}};  // kAllLinear among them: every linear but the head, besides
  ModuleChoice excluded = {};
  std::vector<std::string> modules_to_save =
      {};  // trained whole, as copies, not adapted; names as of targets
  // Stacked tensors of experts ("mlp.experts.gate_up_proj"), and weights of modules ("mlp.gate.weight"), by
  // whole names or what they end with behind a dot.
  std::vector<std::string> parameters = {};
  // Other ranks and alphas by matches_module_pattern; the first that matches counts.
  std::vector<std::pair<std::string, int64_t>> rank_pattern = {};
  std::vector<std::pair<std::string, double>> alpha_pattern = {};

  int64_t rank_of(std::string_view module) const;
  double scale_of(std::string_view module) const;
  bool operator==(const LoraConfig&) const = default;
};

// Whether names of targets hold kAllLinear.
bool stands_for_linears(const std::vector<std::string>& targets);

// One adapted module: some rows of a parameter, or of each expert's part of one.
struct LoraTarget {
  std::string module;  // "model.layers.0.self_attn.q_proj"; of experts the first one's, or the stacked tensor
  const WeightSpec* spec = nullptr;
  int64_t row = 0, rows = 0;
  int64_t rank = 0;
  double scale = 0;
  // Of experts: how many, and the modules of each; none where the adapter's file has one pair of matrices for
  // all of them, as PEFT has for target_parameters: then `file` is the module that holds it there.
  int64_t experts = 0;
  std::vector<std::string> each = {};
  std::string file = {};

  bool stacked() const { return experts > 0 && each.empty(); }
};

// A tensor of the model of which the adapter has its own copy, trained whole.
struct LoraSaved {
  std::string source;  // the model's name for it: "lm_head.weight"
  std::string file;    // the adapter file's: "base_model.model.lm_head.weight"
};

// A module of the model that has a weight, of its own or tied.
struct LoraModule {
  std::string name;              // "model.layers.0.self_attn.q_proj"
  std::optional<int64_t> layer;  // of the decoder, as WeightSpec says
};

// What an adapter of a model trains. The base table must outlive it.
struct LoraPlan {
  std::vector<LoraTarget> targets;
  std::vector<LoraSaved> saved;
  // Copies of the model's own weights that PEFT adds to adapters of the embedding or the head: source, file.
  std::vector<LoraSaved> unchanged;
  std::vector<std::string> repeated;  // the file's tensors that say again what others of it say, or the model
  std::vector<LoraModule> modules;    // modules_with_weights of the model, adapted or not
};

// An Error "where: …" for a pattern of ranks or of alphas that is no regular expression.
void check_pattern_syntax(const LoraConfig& config, const std::string& ranks, const std::string& alphas);

std::vector<LoraModule> modules_with_weights(const WeightTable& base);

// As the configuration says. Errors start with "[where" and the key of a run's configuration: an unknown
// name, one that cannot be adapted, a pattern that matches nothing or stands there twice, a rank below 1, no
// target at all.
LoraPlan plan_lora(const WeightTable& base, const LoraConfig& config, const std::string& where);
// As the tensors of an adapter's file say, which names them as PEFT does; `config` gives ranks and scales.
// Tensors that do not belong to this model are one error that lists them.
LoraPlan plan_lora_of(const WeightTable& base, const LoraConfig& config,
                      const std::vector<std::string>& names, const std::string& where);

// The adapter's own parameters. Targets that share a parameter, q|k|v for example, have one A, of which each
// owns some rows, and a B each. Sources have PEFT's names.
//   layers.0.attention.qkv.lora_A         [Σ ranks, in]
//   layers.0.attention.qkv.lora_B.q_proj  [rows of q_proj, rank]
//   embedding.lora_A                      [vocab, rank], transposed in files
//   saved.lm_head.weight                  as in the model
// Those of experts stand above one another: A [experts · Σ ranks, in], B [experts · rows, rank].
WeightTable lora_table(const WeightTable& base, const LoraPlan& plan);

// An Error "[where] …" for modules that share a parameter where some are adapted and others trained whole.
void check_products(const WeightTable& base, const LoraPlan& plan, const std::string& where);

// What PEFT calls both matrices of a module; of experts one by one: of each.
struct LoraFileNames {
  std::string a, b;
};
std::vector<LoraFileNames> lora_file_names(const LoraTarget& target);

// An Error "[where] …" for dropout of what experts or routers read, which PEFT does not have.
void check_dropout(const LoraPlan& plan, double dropout, const std::string& where);

std::string lora_a_name(const WeightSpec& spec);
std::string lora_b_name(const LoraTarget& target);
std::string saved_name(const std::string& source);

}  // namespace temper
