#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/threads/pinning.h"
#include "config/schema.h"
#include "data/batches.h"
#include "layers/binding.h"
#include "layers/parameters/parameters.h"
#include "ops/selection.h"
#include "recipes/keys/exchange_keys.h"
#include "recipes/keys/parallel_config.h"
#include "recipes/keys/quantize_config.h"
#include "recipes/keys/recipe_keys.h"
#include "tensor/dtype.h"
#include "training/passes/checkpointing.h"
#include "training/passes/cuda_graph.h"
#include "training/schedule.h"
#include "weights/lora.h"

// The configuration of a run, as YAML writes it; defaults are next to the fields.
namespace temper::recipes {

// One key per op: eager, a kernel's name, or nothing for the best on this hardware.
struct OpsImplementation {
  OpsImplementation();  // every field that the hardware tables have, none of them written
  std::map<std::string, std::optional<std::string>> fields;
  config::Table overrides;
  ops::OpsConfig to_ops() const;
};

struct ModelConfig {
  std::string path;
  DType dtype = DType::kF32;  // of the parameters; bfloat16 keeps float32 master weights
  // Of the linears of a model that only adapters are trained of; nothing: dtype.
  std::optional<primitives::FrozenFormat> base_dtype = {};
  bool strict_kernels = false;
  OpsImplementation ops_implementation;
  std::string kept_in() const;  // "bfloat16", "bfloat16, its linears in float8_e4m3fn"
};

// Names of columns that a file calls otherwise; those left out have our names.
struct ColumnsConfig {
  ColumnsConfig();
  std::map<std::string, std::optional<std::string>> fields;
  data::Columns to_columns() const;
};

// A file, or several that are read as one.
struct SourceConfig {
  std::string path;
  std::string name = {};  // "": the file's
  double weight = 1;
  data::RowFormat format = data::RowFormat::kAuto;
  ColumnsConfig columns = {};
  std::vector<std::string> labels = {};
  bool learn_chosen = false;
};

struct DataConfig {
  std::vector<SourceConfig> train;
  std::vector<SourceConfig> eval;
  double eval_fraction = 0;
  data::Mixing mixing = data::Mixing::kConcatenate;
  bool shuffle = true;
  data::LossOn loss = data::LossOn::kAllTurns;
  data::Packing packing = data::Packing::kBestFit;
  int64_t max_length = 1024;
  data::Overflow overflow = data::Overflow::kTruncate;
  data::OnEmptyAnswer on_empty_answer = data::OnEmptyAnswer::kDrop;
  data::OnBadRow on_bad_row = data::OnBadRow::kStop;
  std::string chat_template;    // a file or the name of one of the model's; "": the model's own
  std::string template_kwargs;  // a JSON object
  int64_t threads = 1;
};

struct OptimizerConfig {
  double lr = 1e-5;
  std::array<double, 2> betas{0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;
  bool decay_all = false;
  DType moments = DType::kF32;
};

// By their names in YAML.
const config::Names<training::ScheduleType>& schedule_types();

struct ScheduleConfig {
  training::ScheduleType type = training::ScheduleType::kCosine;
  int64_t warmup_steps = 0;
  double final_fraction = 0;
};

using training::Checkpointing;
enum class Resume { kAuto, kNever };

// What training does with the routers of mixtures of experts.
struct RouterConfig {
  std::optional<double> balance_loss;  // none: as the model's config.json says
  bool global_balance = false;
  double bias_rate = 0;
  layers::RouterOptions options = {};
};

// The largest values that make sense of what counts updates, so that none overflows.
constexpr double kMostSteps = 1e9, kMostEpochs = 1e6, kMostRows = 1e6, kMostTokens = 1e9;

// How updates are computed, in which memory: the results are the same.
struct ComputeConfig {
  int64_t micro_batch_tokens = 8192;
  Checkpointing activation_checkpointing = Checkpointing::kNone;
  training::CudaGraph cuda_graph = training::CudaGraph::kAuto;
  bool keep_delta_states = false;
};

struct ThreadConfig {
  int64_t number = 0;  // 0: one per core
  Pinning pin = Pinning::kAuto;
};

// The keys of the groups `compute` and `threads` stand in `train` itself.
struct TrainConfig {
  int64_t steps = 0;                  // 0: as many as `epochs` give
  std::optional<double> epochs = {};  // 1
  int64_t rows_per_step = 8;          // rows (packed rows with data.packing) in one update
  int64_t tokens_per_step = 0;        // above 0: as many rows as fit, instead of rows_per_step
  ComputeConfig compute;
  DType gradients = DType::kF32;
  bool master_weights = true;
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  double max_grad_norm = 1;
  double z_loss = 0;
  RouterConfig router;
  int64_t seed = 0;
  ThreadConfig threads;
  Resume resume = Resume::kAuto;
  double passes() const { return epochs.value_or(1); }  // over the data, where `steps` is 0
  layers::StateFormat format() const { return {master_weights, gradients, optimizer.moments}; }
};

// Another rank or alpha for the modules that an expression matches.
struct AdapterPattern {
  std::string modules;
  std::optional<int64_t> rank;
  std::optional<double> alpha;
};

// An adapter (LoRA) that is trained instead of the model's weights. Where a run has several, each may have
// data and a schedule of its own; what is left out is the run's.
struct AdapterConfig {
  std::string name = "adapter";
  std::string from = {};        // an adapter's folder to start from, which then decides what is adapted
  std::string begun_from = {};  // not written: the copy of it that a run keeps which has begun
  std::optional<int64_t> rank = {};
  std::optional<double> alpha = {};
  std::optional<bool> rslora = {};
  std::optional<double> dropout = {};
  std::optional<LoraBias> bias = {};
  std::vector<std::string> target_modules = {}, exclude_modules = {}, modules_to_save = {};
  std::vector<std::string> target_parameters = {};
  std::string target_regex = {}, exclude_regex = {};
  std::vector<AdapterPattern> patterns = {};
  std::vector<SourceConfig> train = {}, eval = {};
  std::optional<double> lr = {}, weight_decay = {}, epochs = {}, final_fraction = {};
  std::optional<int64_t> steps = {}, rows_per_step = {}, warmup_steps = {}, seed = {};
  std::optional<training::ScheduleType> schedule = {};
};

struct EvalConfig {
  int64_t every_steps = 0;
  int64_t exact_match = 0;  // held-out questions to answer before and after training
  int64_t max_new_tokens = 64;
};

struct CheckpointConfig {
  std::optional<int64_t> every_steps = {};   // 0: none by steps
  std::optional<double> every_minutes = {};  // 0: none by time; absent: kMinutes unless every_steps is there
  int64_t keep_last = 2;
  bool async = false;
  static constexpr double kMinutes = 5;
  double seconds() const {
    return 60 * every_minutes.value_or(every_steps ? 0 : kMinutes);
  }  // 0: none by time
};

struct RunConfig {
  std::string recipe = "sft";
  std::string output = "runs/sft";
  std::string device = "cpu";
  std::vector<std::string> plugins;
  ModelConfig model;
  std::vector<AdapterConfig> adapters;  // none: the whole model is trained
  DataConfig data;
  TrainConfig train;
  QuantizeConfig quantize;
  RecipeKeys recipe_keys;
  EvalConfig eval;
  CheckpointConfig checkpoint;
  ExchangeConfig exchange;
  ParallelConfig parallel;
  int64_t memory_limit_mib = 0;
};

// The keys of each struct, found by config::Schema.
void describe(config::Schema& s, OpsImplementation& c);
void describe(config::Schema& s, ModelConfig& c);
void describe(config::Schema& s, ColumnsConfig& c);
void describe(config::Schema& s, SourceConfig& c);
void describe(config::Schema& s, DataConfig& c);
void describe(config::Schema& s, OptimizerConfig& c);
void describe(config::Schema& s, ScheduleConfig& c);
void describe(config::Schema& s, TrainConfig& c);
void describe(config::Schema& s, AdapterPattern& c);
void describe(config::Schema& s, AdapterConfig& c);
void describe(config::Schema& s, EvalConfig& c);
void describe(config::Schema& s, CheckpointConfig& c);
void describe(config::Schema& s, RunConfig& c);

}  // namespace temper::recipes
