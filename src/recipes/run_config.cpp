#include "recipes/run_config.h"

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
    s.field(field + "_implementation", name,
            ops::has_op(field)
                ? "kernel: eager, a name from 'temper ops'; omitted: the best for this hardware"
                : "no op of this version reads it; a name is checked against the hardware's table");
  s.field("overrides", c.overrides, "other kernels by module: {\"layers.0-3.*\": {rms_norm: eager}}");
}

std::string ModelConfig::kept_in() const {
  return base_dtype ? fmt::format("{}, its linears in {}", to_string(dtype), to_string(*base_dtype))
                    : std::string(to_string(dtype));
}

void describe(config::Schema& s, ModelConfig& c) {
  s.field("path", c.path, "model folder in Hugging Face format").required();
  s.choice("dtype", c.dtype, {{"float32", DType::kF32}, {"bfloat16", DType::kBF16}},
           "of the parameters; see train.master_weights for bfloat16");
  s.choice("base_dtype", c.base_dtype, {{"float8_e4m3fn", DType::kF8E4M3}},
           "with adapters: what the frozen weights of linears are kept in; omitted: model.dtype");
  s.group("ops_implementation", c.ops_implementation, "the kernel of each op, chosen once");
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
  for (auto& [ours, theirs] : c.fields) s.field(ours, theirs, "the file's name for it");
}

void describe(config::Schema& s, SourceConfig& c) {
  std::vector<std::pair<std::string, RowFormat>> formats;
  for (size_t i = 0; i < data::kNumFormats; ++i)
    formats.emplace_back(data::name_of(static_cast<RowFormat>(i)), static_cast<RowFormat>(i));
  s.field("path", c.path, "a data file").required();
  s.field("name", c.name, "in metrics and reports; omitted: the file's name");
  s.field("weight", c.weight, "its share of the rows, unless data.mixing is concatenate")
      .at_least(1e-6)
      .at_most(1e6);
  s.choice("format", c.format, formats, "what its rows are; auto: by their fields");
  s.group("columns", c.columns, "columns that the file calls otherwise: {messages: dialog}");
  s.field("labels", c.labels, "names of the classes of a classification, by number");
  s.field("learn_chosen", c.learn_chosen, "learn the chosen answer of preferences, with recipe sft");
}

void describe(config::Schema& s, DataConfig& c) {
  s.list("train", c.train, "data files, or sources with a path and more: docs/data.md").shorthand("path");
  s.list("eval", c.eval, "held-out data files").shorthand("path");
  s.field("eval_fraction", c.eval_fraction, "of the rows of data.train that are held out for evaluation")
      .at_least(0)
      .below(1);
  s.choice("mixing", c.mixing, named({Mixing::kConcatenate, Mixing::kFirstExhausted, Mixing::kAllExhausted}),
           "an epoch is all rows; or rows in proportion to the weights until the first source, or the last, "
           "was read whole");
  s.field("shuffle", c.shuffle, "anew in every epoch; else the order of the files");
  s.choice("loss", c.loss, {{"assistant", LossOn::kAssistant}, {"all", LossOn::kAll}},
           "which tokens are targets: those the assistant wrote, or all");
  s.choice(
      "packing", c.packing,
      {{"best_fit", Packing::kBestFit}, {"sequential", Packing::kSequential}, {"none", Packing::kNone}},
      "put several documents into one row, where they fit best or in their order; attention and positions "
      "stay per document");
  s.field("max_length", c.max_length, "tokens in a row").at_least(2);
  s.choice("overflow", c.overflow,
           {{"truncate", Overflow::kTruncate},
            {"split", Overflow::kSplit},
            {"drop", Overflow::kDrop},
            {"error", Overflow::kError}},
           "what happens to documents longer than max_length; counted and reported");
  s.choice("on_empty_answer", c.on_empty_answer,
           {{"drop", OnEmptyAnswer::kDrop}, {"learn", OnEmptyAnswer::kLearn}},
           "what answers without text, calls and reasoning do: they are left out and counted, or learnt");
  s.choice("on_bad_row", c.on_bad_row, {{"stop", OnBadRow::kStop}, {"skip", OnBadRow::kSkip}},
           "what a row that cannot be read does; skipped rows are counted and reported");
  s.field("template_kwargs", c.template_kwargs,
          "variables for the chat template, as JSON: '{\"enable_thinking\": false}'");
  s.field("threads", c.threads, "that tokenize ahead of training; 0: none").at_least(0).at_most(256);
}

void describe(config::Schema& s, OptimizerConfig& c) {
  s.field("lr", c.lr, "peak learning rate").above(0);
  s.field("betas", c.betas, "decay of the first and second moments").at_least(0).below(1);
  s.field("eps", c.eps, "added to the root of the second moment").above(0);
  s.field("weight_decay", c.weight_decay, "decoupled; norms and biases are exempt unless decay_all")
      .at_least(0);
  s.field("decay_all", c.decay_all, "decay norms and biases too");
  s.choice("moments", c.moments, kStateDTypes, "of both moments; bfloat16 is rounded stochastically");
}

void describe(config::Schema& s, ScheduleConfig& c) {
  s.choice("type", c.type, schedule_types(), "of the learning rate after the warm-up");
  s.field("warmup_steps", c.warmup_steps, "updates of linear rise").at_least(0);
  s.field("final_fraction", c.final_fraction, "of the peak, at the last update").at_least(0).at_most(1);
}

void describe(config::Schema& s, TrainConfig& c) {
  s.field("steps", c.steps, "updates; 0: as many as epochs give").at_least(0);
  s.field("epochs", c.epochs, "passes over the data when steps is 0").above(0);
  s.field("rows_per_step", c.rows_per_step, "rows in one update (packed rows with data.packing)").at_least(1);
  s.field("tokens_per_step", c.tokens_per_step,
          "above 0: as many rows as have so many tokens, instead of rows_per_step")
      .at_least(0);
  s.field("micro_batch_tokens", c.micro_batch_tokens,
          "tokens computed at once (at least one row); 0: the whole update")
      .at_least(0);
  s.choice("activation_checkpointing", c.activation_checkpointing,
           {{"none", Checkpointing::kNone},
            {"selective", Checkpointing::kSelective},
            {"full", Checkpointing::kFull}},
           "selective: compute what is cheap again in backward; full: everything but each layer's input");
  s.choice(
      "cuda_graph", c.cuda_graph,
      {{"auto", training::CudaGraph::kAuto},
       {"off", training::CudaGraph::kOff},
       {"on", training::CudaGraph::kOn}},
      "on a GPU, capture steps that come again with the same shape; auto: small ones, where kernels allow");
  s.choice("gradients", c.gradients, kStateDTypes, "what gradients are kept in until the update");
  s.field("master_weights", c.master_weights,
          "keep float32 weights beside bfloat16 parameters; without them updates are rounded stochastically");
  s.group("optimizer", c.optimizer, "AdamW");
  s.group("schedule", c.schedule, "the learning rate over time");
  s.field("max_grad_norm", c.max_grad_norm, "gradients are scaled down to this norm; 0: no clipping")
      .at_least(0);
  s.field("z_loss", c.z_loss, "weight of (log Σ exp(logits))² in the loss, 1e-4 as a rule; 0: none")
      .at_least(0);
  s.field("seed", c.seed, "of shuffling and initialization").at_least(0);
  s.field("threads", c.threads, "0: one per core").at_least(0);
  s.choice(
      "pin_threads", c.pin_threads, {{"auto", Pinning::kAuto}, {"off", Pinning::kOff}, {"on", Pinning::kOn}},
      "each thread to a core of its own; auto: on a CPU, with as many threads as cores that may be used");
  s.choice("resume", c.resume, {{"auto", Resume::kAuto}, {"never", Resume::kNever}},
           "auto: continue the run that the output folder holds; never: refuse a folder that holds one");
}

void describe(config::Schema& s, PreferenceConfig& c) {
  using Loss = PreferenceConfig::Loss;
  s.choice("loss", c.loss,
           {{"dpo", Loss::kDpo}, {"ipo", Loss::kIpo}, {"orpo", Loss::kOrpo}, {"kto", Loss::kKto}},
           "of pairs (prompt, chosen, rejected), or of judged answers (kto: prompt, completion, label)");
  s.field("beta", c.beta, "how closely the model is held to its reference: dpo, ipo, kto").above(0);
  s.field("label_smoothing", c.label_smoothing, "the part of the pairs that are the wrong way round: dpo")
      .at_least(0)
      .below(0.5);
  s.field("margin", c.margin, "by which the chosen answer must be ahead: dpo").at_least(0);
  s.field("length_normalized", c.length_normalized, "log-probabilities per token: dpo, ipo");
  s.field("reference_free", c.reference_free, "compare with nothing: dpo, ipo");
  s.field("lambda", c.lambda, "weight of the odds ratio: orpo").above(0);
  s.field("good_weight", c.good_weight, "of good answers: kto").above(0);
  s.field("bad_weight", c.bad_weight, "of bad answers: kto").above(0);
  s.field("reference", c.reference,
          "a model's folder to compare with; omitted: the model as it was (without its adapter)");
  s.field("precompute", c.precompute,
          "compute the reference's log-probabilities once, into the run's folder; omitted: where the whole "
          "model is trained");
  s.field("share_prompts", c.share_prompts, "compute the prompt of both answers once");
}

void describe(config::Schema& s, EvalConfig& c) {
  s.field("every_steps", c.every_steps, "updates between evaluations; 0: only at the end").at_least(0);
  s.field("exact_match", c.exact_match, "held-out questions to answer greedily before and after training")
      .at_least(0);
  s.field("max_new_tokens", c.max_new_tokens, "of an answer").at_least(1);
}

void describe(config::Schema& s, CheckpointConfig& c) {
  s.field("every_steps", c.every_steps, "updates between checkpoints; 0: only at the end").at_least(0);
  s.field("keep_last", c.keep_last, "checkpoints kept, besides the best one").at_least(1);
}

void describe(config::Schema& s, RunConfig& c) {
  s.field("recipe", c.recipe, "how training is wired together").one_of({"sft", "preference"});
  s.field("output", c.output, "the run's folder");
  s.field("device", c.device,
          "cpu, cuda (an NVIDIA GPU; cuda:1 is the second one), or a device that a plug-in brings");
  s.field("plugins", c.plugins, "shared libraries, or folders of them, that bring kernels (docs/kernels.md)");
  s.group("model", c.model, "what is trained");
  s.list("adapters", c.adapters,
         "adapters (LoRA) to train instead of the model's weights, one or several at once: docs/lora.md");
  s.group("data", c.data, "what it is trained on");
  s.group("train", c.train, "how it is trained");
  s.group("preference", c.preference, "how judged answers are learnt from, with recipe preference");
  s.group("eval", c.eval, "how it is judged");
  s.group("checkpoint", c.checkpoint, "what is kept of it");
  s.field("memory_limit_mib", c.memory_limit_mib,
          "of all tensors on the device together; 0: nearly all that is free")
      .at_least(0);
}

}  // namespace temper::recipes
