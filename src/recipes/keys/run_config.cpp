#include "recipes/keys/run_config.h"

#include "base/threads/max_threads.h"
#include "recipes/keys/foreign_names.h"
#include "recipes/keys/recipe.h"

namespace temper::recipes {

using data::LossOn;
using data::Mixing;
using data::OnBadRow;
using data::OnEmptyAnswer;
using data::Overflow;
using data::Packing;
using data::RowFormat;

namespace {

const std::vector<std::pair<std::string, DType>> kStateDTypes{{"float32", DType::kF32},
                                                              {"bfloat16", DType::kBF16}};

// Values by the names that data/ has for them.
template <class Enum>
config::Names<Enum> named(std::initializer_list<Enum> values) {
  config::Names<Enum> names;
  for (const Enum value : values) names.emplace_back(data::name_of(value), value);
  return names;
}

}  // namespace

const config::Names<training::ScheduleType>& schedule_types() {
  using training::ScheduleType;
  static const config::Names<ScheduleType> names{{"cosine", ScheduleType::kCosine},
                                                 {"linear", ScheduleType::kLinear},
                                                 {"constant", ScheduleType::kConstant}};
  return names;
}

OpsImplementation::OpsImplementation() {
  for (const std::string& field : ops::all_fields()) fields.emplace(field, std::nullopt);
}

ops::OpsConfig OpsImplementation::to_ops() const {
  ops::OpsConfig config;
  for (const auto& [field, name] : fields)
    if (name) config.written.emplace(field, *name);
  config.overrides = overrides;
  return config;
}

void describe(config::Schema& s, OpsImplementation& c) {
  for (auto& [field, name] : c.fields)
    s.field(
        field + "_implementation", name,
        ops::has_op(field)
            ? "The kernel of this op: eager, or a name from 'temper ops'. Omitted: the best for the hardware."
            : "No op of this version reads this key; a name is checked against the hardware's table.");
  s.field("overrides", c.overrides, "Other kernels for some modules: {\"layers.0-3.*\": {rms_norm: eager}}.");
}

std::string ModelConfig::kept_in() const {
  return base_dtype ? fmt::format("{}, its linears in {}", to_string(dtype), to_string(*base_dtype))
                    : std::string(to_string(dtype));
}

void describe(config::Schema& s, ModelConfig& c) {
  s.field("path", c.path, "The folder of the model to train, in Hugging Face format.").required().path();
  s.choice(
       "dtype", c.dtype, {{"float32", DType::kF32}, {"bfloat16", DType::kBF16}},
       "The precision of the model's parameters; with bfloat16, train.master_weights keeps float32 copies.")
      .answer("bf16", "write bfloat16")
      .answer("fp32", "write float32")
      .answer("fp16", "float16 is not supported: write bfloat16")
      .answer("float16", "float16 is not supported: write bfloat16")
      .answer("half", "float16 is not supported: write bfloat16");
  s.choice("base_dtype", c.base_dtype,
           {{"float8_e4m3fn", primitives::FrozenFormat::kFloat8},
            {"nf4", primitives::FrozenFormat::kNf4},
            {"nf4_double", primitives::FrozenFormat::kNf4Double}},
           "The format of the frozen weights of linears while adapters are trained; nf4_double is nf4 with "
           "double quantization. Omitted: model.dtype.");
  s.field("strict_kernels", c.strict_kernels,
          "Whether a kernel that is not the best one for the device ends the run; false: a warning says so.")
      .changeable();
  s.group("ops_implementation", c.ops_implementation, "The kernel of each op, chosen once.").rare();
}

ColumnsConfig::ColumnsConfig() {
  for (const std::string_view name : data::kColumnNames) fields.emplace(name, std::nullopt);
}

data::Columns ColumnsConfig::to_columns() const {
  data::Columns columns;
  for (const auto& [ours, theirs] : fields)
    if (theirs) columns.emplace(ours, *theirs);
  return columns;
}

void describe(config::Schema& s, ColumnsConfig& c) {
  for (auto& [ours, theirs] : c.fields) s.field(ours, theirs, "The name that the file has for this column.");
}

// Files may be called otherwise and lie elsewhere: what they hold is compared when a run is resumed.
void describe(config::Schema& s, SourceConfig& c) {
  std::vector<std::pair<std::string, RowFormat>> formats;
  for (size_t i = 0; i < data::kNumFormats; ++i)
    formats.emplace_back(data::name_of(static_cast<RowFormat>(i)), static_cast<RowFormat>(i));
  s.field("path", c.path, "A data file.").required().path().changeable();
  s.field("name", c.name, "The name of the source in metrics and reports. Omitted: the file's name.")
      .changeable();
  s.field("weight", c.weight, "The source's share of the rows, unless data.mixing is concatenate.")
      .at_least(1e-6)
      .at_most(1e6);
  s.choice("format", c.format, formats, "The format of the file's rows; auto decides by their fields.");
  s.group("columns", c.columns, "Columns that have other names in the file: {messages: dialog}.");
  s.field("labels", c.labels, "The names of the classes of a classification, by number.");
  s.field("learn_chosen", c.learn_chosen, "Learn the chosen answer of each preference, with recipe sft.");
}

void describe(config::Schema& s, DataConfig& c) {
  s.list("train", c.train, "The files to train on, or sources with a path and more (docs/data.md).")
      .shorthand("path");
  s.list("eval", c.eval, "The files to evaluate on, which are held out from training.")
      .shorthand("path")
      .changeable();
  s.field("eval_fraction", c.eval_fraction,
          "The fraction of the rows of data.train that is held out for evaluation.")
      .at_least(0)
      .below(1);
  s.choice(
      "mixing", c.mixing, named({Mixing::kConcatenate, Mixing::kFirstExhausted, Mixing::kAllExhausted}),
      "The rows of an epoch of several sources: all rows, or rows in proportion to the weights until the "
      "first source, or the last one, has been read completely.");
  s.field("shuffle", c.shuffle, "Shuffle the rows again in every epoch, instead of reading them in order.");
  s.choice(
       "loss", c.loss,
       {{"all_turns", LossOn::kAllTurns},
        {"last_turn", LossOn::kLastTurn},
        {"all", LossOn::kAll},
        {"assistant", LossOn::kAllTurns}},
       "Which tokens are targets: those of all turns of the assistant (assistant means the same), those of "
       "its last turn, or all tokens.")
      .answer("completion", "write all_turns")
      .answer("response", "write all_turns");
  s.choice(
       "packing", c.packing,
       {{"best_fit", Packing::kBestFit}, {"sequential", Packing::kSequential}, {"none", Packing::kNone}},
       "How rows of the files are packed into training rows of up to data.max_length tokens: where they fit "
       "best, or in their order. Attention and positions stay within each document.")
      .answer("true", "write best_fit")
      .answer("false", "write none");
  s.field("max_length", c.max_length,
          "The most tokens of a row. Omitted: 1024, or the model's positions if fewer.")
      .at_least(2);
  s.choice("overflow", c.overflow,
           {{"truncate", Overflow::kTruncate},
            {"split", Overflow::kSplit},
            {"drop", Overflow::kDrop},
            {"error", Overflow::kError}},
           "What happens to documents that are longer than data.max_length; they are counted and reported.");
  s.choice("on_empty_answer", c.on_empty_answer,
           {{"drop", OnEmptyAnswer::kDrop}, {"learn", OnEmptyAnswer::kLearn}},
           "What happens to answers without text, calls and reasoning; those left out are counted.")
      .older_runs_had("learn");
  s.choice("on_bad_row", c.on_bad_row, {{"stop", OnBadRow::kStop}, {"skip", OnBadRow::kSkip}},
           "What happens when a row cannot be read; skipped rows are counted and reported.")
      .changeable();
  s.field("chat_template", c.chat_template,
          "The chat template to use: a file, or the name of one that the model has. Omitted: the model's "
          "default.")
      .path();
  s.field("template_kwargs", c.template_kwargs,
          "Variables for the chat template, as a JSON object: '{\"enable_thinking\": false}'.");
  s.field("threads", c.threads, "The number of threads that tokenize rows ahead of training; 0 is none.")
      .at_least(0)
      .at_most(256)
      .changeable();
}

void describe(config::Schema& s, OptimizerConfig& c) {
  s.field("lr", c.lr, "The peak learning rate.").above(0);
  s.field("betas", c.betas, "The decay rates of the first and second moments.").at_least(0).below(1);
  s.field("eps", c.eps, "The number that is added to the root of the second moment.").above(0);
  s.field("weight_decay", c.weight_decay,
          "The decoupled weight decay; norms and biases are exempt unless train.optimizer.decay_all is true.")
      .at_least(0);
  s.field("decay_all", c.decay_all, "Apply weight decay to norms and biases, too.");
  s.choice("moments", c.moments, kStateDTypes,
           "The precision of both moments; bfloat16 is rounded stochastically.");
}

void describe(config::Schema& s, ScheduleConfig& c) {
  s.choice("type", c.type, schedule_types(), "How the learning rate changes after the warm-up.")
      .answer("constant_with_warmup", "write constant, with train.schedule.warmup_steps")
      .answer("cosine_with_min_lr", "write cosine, with train.schedule.final_fraction");
  s.field("warmup_steps", c.warmup_steps,
          "The number of updates in which the learning rate rises linearly to its peak.")
      .at_least(0);
  s.field("final_fraction", c.final_fraction,
          "The last learning rate as a fraction of the peak; with 0, the update after the last would have 0.")
      .at_least(0)
      .at_most(1);
}

void describe(config::Schema& s, RouterConfig& c) {
  s.field(
       "balance_loss", c.balance_loss,
       "The factor of the load balancing loss. Omitted: router_aux_loss_coef where the model's config.json "
       "has output_router_logits: true, else 0.")
      .at_least(0);
  s.choice("balance_scope", c.global_balance, {{"micro_batch", false}, {"global", true}},
           "The tokens whose loads count in this loss: those of each micro-batch, or of the whole update, "
           "which costs one more forward pass of updates with several micro-batches.");
  s.field(
       "bias_rate", c.bias_rate,
       "By how much an update moves the correction bias of each expert towards the mean load; 0 leaves the "
       "biases as they are.")
      .at_least(0);
  s.field("float32", c.options.float32,
          "Compute the logits of routers in float32, whatever model.dtype is and the family does.");
  s.field("force_balance", c.options.balanced,
          "Give tokens their experts in turn instead of by the routers' choice: for measuring speed only, as "
          "the model learns nothing of use.");
}

void describe_keys(config::Schema& s, ComputeConfig& c) {
  s.field("micro_batch_tokens", c.micro_batch_tokens,
          "The largest number of tokens in a micro-batch, of at least one row (instead of gradient "
          "accumulation steps); it changes the memory, not the result. 0 is one for the whole update.")
      .at_least(0)
      .changeable();
  s.choice("activation_checkpointing", c.activation_checkpointing,
           {{"none", Checkpointing::kNone},
            {"selective", Checkpointing::kSelective},
            {"full", Checkpointing::kFull}},
           "Gradient checkpointing: the activations that the backward pass recomputes instead of keeping; "
           "selective is those that are cheap, full is all but each layer's input.")
      .answer("true", "write selective or full")
      .answer("false", "write none")
      .changeable();
  s.choice("cuda_graph", c.cuda_graph,
           {{"auto", training::CudaGraph::kAuto},
            {"off", training::CudaGraph::kOff},
            {"on", training::CudaGraph::kOn}},
           "Whether steps of a repeated shape are captured in CUDA graphs; auto captures small steps whose "
           "kernels allow it.")
      .changeable();
  s.field("keep_delta_states", c.keep_delta_states,
          "Whether the gated delta rule keeps its states between chunks for the backward pass, which is "
          "faster and takes more memory, instead of computing them again; on GPUs.")
      .changeable();
}

void describe_keys(config::Schema& s, ThreadConfig& c) {
  s.field("threads", c.number, "The number of threads that compute; 0 is one per core.")
      .at_least(0)
      .at_most(kMaxThreads)
      .changeable();
  s.choice(
       "pin_threads", c.pin, {{"auto", Pinning::kAuto}, {"off", Pinning::kOff}, {"on", Pinning::kOn}},
       "Whether each thread stays on a core of its own; auto does so on a CPU with as many threads as cores.")
      .changeable();
}

// How long a run is, and how large its updates.
void describe_lengths(config::Schema& s, TrainConfig& c) {
  s.field("steps", c.steps, "The number of updates; 0 is as many as train.epochs give.")
      .at_least(0)
      .at_most(kMostSteps)
      .changeable();
  s.field("epochs", c.epochs, "The number of passes over the data where train.steps is 0. Omitted: 1.")
      .above(0)
      .at_most(kMostEpochs)
      .changeable();
  s.field("rows_per_step", c.rows_per_step,
          "The batch size: the rows of one update (packed rows, with data.packing), over all ranks.")
      .at_least(1)
      .at_most(kMostRows);
  s.field("tokens_per_step", c.tokens_per_step,
          "The batch size in tokens, instead of train.rows_per_step; 0: rows are counted.")
      .at_least(0)
      .at_most(kMostTokens);
}

void describe(config::Schema& s, TrainConfig& c) {
  describe_lengths(s, c);
  describe_keys(s, c.compute);
  s.choice("gradients", c.gradients, kStateDTypes,
           "The precision in which gradients are kept until the update.");
  s.field("master_weights", c.master_weights,
          "Keep float32 master weights for bfloat16 parameters; without them updates are rounded "
          "stochastically.");
  s.group("optimizer", c.optimizer, "The optimizer, which is AdamW.");
  s.group("schedule", c.schedule, "The learning rate over time.");
  s.field("max_grad_norm", c.max_grad_norm,
          "Gradient clipping: the norm to which larger gradients are scaled down; 0 is no clipping.")
      .at_least(0);
  s.field("z_loss", c.z_loss, "The weight of (log Σ exp(logits))² in the loss, 1e-4 as a rule; 0 is none.")
      .at_least(0);
  s.group("router", c.router, "The routers of mixtures of experts.");
  s.field("seed", c.seed, "The seed of all random numbers: of shuffling, initialization and dropout.")
      .at_least(0);
  describe_keys(s, c.threads);
  s.choice("resume", c.resume, {{"auto", Resume::kAuto}, {"never", Resume::kNever}},
           "What happens when the output folder holds a run: auto resumes it, never refuses the folder.")
      .changeable();
}

void describe(config::Schema& s, EvalConfig& c) {
  s.field("every_steps", c.every_steps,
          "The number of updates between evaluations; 0 evaluates at the end only.")
      .at_least(0);
  s.field("exact_match", c.exact_match,
          "How many held-out questions are answered greedily before and after training, to count the answers "
          "that match exactly; 0 asks none.")
      .at_least(0);
  s.field("max_new_tokens", c.max_new_tokens,
          "The largest number of tokens in the answer to one of these questions.")
      .at_least(1);
}

void describe(config::Schema& s, CheckpointConfig& c) {
  s.field("every_steps", c.every_steps,
          "The number of updates between checkpoints; 0 saves at the end only. Omitted: see "
          "checkpoint.every_minutes.")
      .at_least(0);
  s.field("every_minutes", c.every_minutes,
          "The time between checkpoints, in minutes; 0 saves none by time. Omitted: 5, or longer where "
          "saving takes more than a twentieth of the time, unless checkpoint.every_steps is given.")
      .at_least(0)
      .at_most(1e6);
  s.field("keep_last", c.keep_last, "The number of checkpoints that are kept, besides the best one.")
      .at_least(1);
  s.field("async", c.async,
          "Whether checkpoints are written in the background while training continues, from a copy of the "
          "state in the CPU's memory; otherwise the run waits until they are written.");
}

void describe(config::Schema& s, RunConfig& c) {
  declare_recipe(s, c.recipe);
  s.field("output", c.output, "The folder of the run; all that the run writes is in it.").path().changeable();
  s.field("device", c.device,
          "Where the run computes: cpu, cuda (an NVIDIA GPU; cuda:1 is the second one), or a device of a "
          "plug-in.")
      .changeable();
  s.field("plugins", c.plugins, "Shared libraries, or folders of them, that bring kernels (docs/kernels.md).")
      .path();
  s.group("model", c.model, "The model that is trained.");
  s.list("adapters", c.adapters,
         "Adapters (LoRA) to train instead of the model's weights, one or several at once (docs/lora.md).");
  s.group("data", c.data, "The data that the model is trained on.");
  s.group("train", c.train, "How the model is trained.");
  s.group("quantize", c.quantize,
          "Quantization-aware training: number formats of weights and inputs (docs/quantization.md).");
  c.recipe_keys.declare(s);
  s.group("eval", c.eval, "How the model is evaluated while it is trained.").changeable();
  s.group("checkpoint", c.checkpoint, "Which checkpoints are written and kept.").changeable();
  s.group(
       "exchange", c.exchange,
       "Another process of this machine that gets the weights as they are trained (docs/weight_exchange.md).")
      .changeable();
  s.group("parallel", c.parallel, "How several ranks divide the work (docs/ranks.md).").changeable();
  s.field("memory_limit_mib", c.memory_limit_mib,
          "The most memory that all tensors on the device may use together, in MiB; 0 is nearly all that is "
          "free.")
      .at_least(0)
      .changeable();
  answer_foreign_names(s);
}

}  // namespace temper::recipes
