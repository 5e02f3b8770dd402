#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string>

#include "base/clock.h"
#include "base/threads/pinning.h"
#include "bench/arguments.h"
#include "bench/machine_peak.h"
#include "bench/ranks.h"
#include "bench/shapes.h"
#include "bench/training_rows.h"
#include "calibration/calibration.h"
#include "collectives/device_group.h"
#include "collectives/launch.h"
#include "collectives/launched.h"
#include "device/transfer.h"
#include "models/adapter.h"
#include "optimizers/adamw.h"
#include "parallel/mesh_groups.h"
#include "parallel/model_parts.h"
#include "reports/profile.h"
#include "training/adapter_trainer.h"

namespace temper {
namespace {

constexpr const char* kUsage =
    R"(Training speed of one model on rows of tokens: a whole step, from rows to updated parameters.
  temper_bench_train [SHAPE | FOLDER] [--device D] [--dtype T] [--rows N] [--length N] [--documents N]
                     [--micro-batches N] [--steps N] [--lr R] [--threads N] [--pin] [--profile]
                     [--checkpointing none|selective|full] [--attention KERNEL] [--float32-state] [--balanced]
                     [--tokens FILE | --data FILE [--write-documents FILE]] [--adapters N] [--rank N]
                     [--adapter FOLDER] [--layers N] [--base-dtype float8_e4m3fn|nf4|nf4_double]
                     [--shard [--shard-level 1|2|3]] [--context N [--context-method ulysses|ring|usp]] [--tensor N]
                     [--expert N] [--pipeline N [--pipeline-chunks N] [--pipeline-schedule S]]
                     [--quantize PRESET [--expert-inputs]]
A known shape (bench/shapes.h) has random weights, a folder in Hugging Face's format those of its files.
Gradients and moments have the dtype of the parameters, without master weights; --float32-state keeps
float32 ones; --documents packs a row of this number of documents of uneven lengths; --balanced gives tokens their
experts in turn (train.router.force_balance). Tokens are random, or int32 of a file, step after step, or
--data's dialogues, which a folder's tokenizer encodes and which are packed as `temper train` does;
--write-documents says what they are. With adapters the model is frozen, and each of them (LoRA on all
linears) learns from its share of the rows; --adapter is one of PEFT's folders. Prints one line of JSON;
memory is the process's on a CPU, the device pool's on a GPU, and `of_peak` the share of a large product's
speed on the same machine. --layers changes a shape, --base-dtype keeps the frozen model's linears in 8
or 4 bits, --pin pins threads to cores, --profile adds a table of where time goes, by op.
Started by mpirun, each rank has a GPU and rows of its own, with --shard a part of the optimizer's state; --context ranks divide the tokens of the same rows, --tensor ranks
each layer, --expert ranks divide a mixture's experts, --pipeline stages have a part of the layers (or several) and
pass micro-batches on. --quantize trains for the formats of a preset (inputs of experts
stay as they are without --expert-inputs), calibrated by the first rows. Speeds are those of all ranks
together.
)";

struct Options {
  std::string model = "small", device = "cpu", checkpointing = "none", attention, tokens, data,
              write_documents, adapter, quantize;
  ContextMethod context_method = ContextMethod::kAuto;
  recipes::PipelineSchedule pipeline_schedule = recipes::PipelineSchedule::kAuto;
  DType dtype = DType::kBF16;
  std::optional<primitives::FrozenFormat> base_dtype;
  int64_t rows = 8, length = 512, documents = 1, micro_batches = 1, steps = 7, threads = 0, adapters = 0,
          rank = 16, layers = 0, context = 1, tensor = 1, expert = 1, pipeline = 1, pipeline_chunks = 1,
          shard_level = 1;
  double lr = 1e-5;
  bool float32_state = false, profile = false, pin = false, balanced = false, shard = false,
       expert_inputs = false;
};

std::unique_ptr<RowSource> row_source(const Options& options, int64_t vocab) {
  const RowSizes sizes{options.rows * options.micro_batches, options.length, options.documents};
  if (options.data.empty()) return std::make_unique<TokenRows>(sizes, vocab, options.tokens);
  auto dialogues = std::make_unique<DialogueRows>(sizes, options.model, options.data);
  if (!options.write_documents.empty()) dialogues->write(options.write_documents, options.steps);
  return dialogues;
}

recipes::ParallelConfig parallel_keys(const Options& options) {
  recipes::ParallelConfig keys;
  if (options.shard) keys.degree("shard") = "auto";
  keys.shard_level = options.shard_level;
  keys.degree("context") = std::to_string(options.context);
  keys.context_method = options.context_method;
  keys.pipeline = options.pipeline;
  keys.pipeline_chunks = options.pipeline_chunks;
  keys.pipeline_schedule = options.pipeline_schedule;
  return keys;
}

Mesh mesh_of(const Options& options, int ranks) {
  recipes::RunConfig config;
  config.parallel = parallel_keys(options);
  return mesh_of_ranks(config, options.tensor, options.expert, ranks);
}

quantizers::QuantizeOptions quantizers_of(const Options& options) {
  quantizers::QuantizeOptions quantize{options.quantize, {}};
  if (!options.expert_inputs && !is_folder(options.model) && bench_shape(options.model).experts > 0)
    quantize.rules = {{"layers.*.mlp.experts.*", {}, quantizers::QuantizerKind{}}};
  return quantize;
}

// What learns: the model, or adapters of it.
class Learning {
 public:
  Learning(models::Model& model, const Options& options, const optimizers::AdamWOptions& optimizing,
           const parallel::MeshGroups& groups)
      : options_(options) {
    const parallel::UpdateRanks ranks = groups.update();
    trainer_options_.micro_batch_tokens = options.rows * options.length;
    trainer_options_.pipeline = parallel_keys(options).schedule();
    trainer_options_.checkpointing = options.checkpointing == "full" ? training::Checkpointing::kFull
                                     : options.checkpointing == "selective"
                                         ? training::Checkpointing::kSelective
                                         : training::Checkpointing::kNone;
    if (options.adapters == 0) {
      optimizers_.push_back(std::make_unique<optimizers::AdamW>(
          model.decoder.parameters(), model.decoder.ops(), optimizing, groups.sharing()));
      trainer_ = std::make_unique<training::Trainer>(model.decoder, *optimizers_[0], trainer_options_,
                                                     nullptr, ranks);
      return;
    }
    for (int64_t i = 0; i < options.adapters; ++i) {
      adapters_.push_back(options.adapter.empty()
                              ? models::new_adapter(model, {.rank = static_cast<int>(options.rank)},
                                                    static_cast<uint64_t>(i), "")
                              : models::load_adapter(model, options.adapter));
      optimizers_.push_back(std::make_unique<optimizers::AdamW>(
          adapters_.back()->parameters(), model.decoder.ops(), optimizing, groups.sharing()));
    }
    adapter_trainer_ = std::make_unique<training::AdapterTrainer>(model.decoder, trainer_options_, ranks);
  }

  std::vector<training::PendingStep> begin(const Rows& rows) {
    std::vector<training::PendingStep> steps;
    if (trainer_) {
      steps.push_back(trainer_->begin(rows, options_.lr));
      return steps;
    }
    std::vector<Rows> shares(adapters_.size());
    for (size_t i = 0; i < rows.size(); ++i) shares[i * adapters_.size() / rows.size()].push_back(rows[i]);
    std::vector<training::AdapterShare> parts;
    for (size_t i = 0; i < adapters_.size(); ++i)
      parts.push_back({adapters_[i].get(), optimizers_[i].get(), &shares[i], options_.lr});
    return adapter_trainer_->begin(parts);
  }

 private:
  const Options& options_;
  training::TrainerOptions trainer_options_;
  std::vector<std::unique_ptr<layers::Adapter>> adapters_;
  std::vector<std::unique_ptr<optimizers::AdamW>> optimizers_;
  std::unique_ptr<training::Trainer> trainer_;
  std::unique_ptr<training::AdapterTrainer> adapter_trainer_;
};

struct Result {
  double loss = 0, grad_norm = 0, flops = 0, seconds = 0;
  int64_t tokens = 0;
  std::optional<training::PipelineResult> pipeline = {};
};

Result wait(std::vector<training::PendingStep>& steps) {
  Result result;
  for (training::PendingStep& step : steps) {
    const training::StepResult part = step.wait();
    result.loss += part.loss / static_cast<double>(steps.size());
    result.grad_norm = std::hypot(result.grad_norm, part.grad_norm);
    result.flops += part.flops;
    result.pipeline = part.pipeline;
  }
  return result;
}

struct Training {
  std::vector<Result> steps;
  double first_seconds = 0;  // until the first step is done
  Rows rows;                 // of the last step
};

// On a GPU a step is asked for before the one ahead of it is waited for; the time of a step is that between
// two ends.
Training train(Learning& learning, RowSource& source, int64_t most_steps, bool on_cpu, double start) {
  Training done;
  std::vector<training::PendingStep> pending;
  double before = start;
  int64_t pending_tokens = 0;
  const auto finish = [&] {
    if (pending.empty()) return;
    done.steps.push_back(wait(pending));
    const double now = seconds_now();
    done.steps.back().seconds = now - before;
    done.steps.back().tokens = pending_tokens;
    before = now;
    if (done.first_seconds == 0) done.first_seconds = now - start;
  };
  for (int64_t i = 0; i < most_steps; ++i) {
    Rows rows = source.next();
    if (rows.empty()) break;
    done.rows = std::move(rows);
    int64_t tokens = 0;
    for (const data::PackedRow& row : done.rows) tokens += row.size();
    std::vector<training::PendingStep> next = learning.begin(done.rows);
    finish();
    pending = std::move(next);
    pending_tokens = tokens;
    if (i == 0 || on_cpu) finish(), pending.clear();
  }
  finish();
  return done;
}

void print_profile(Learning& learning, const Rows& rows, const HardwareFacts& facts, DType dtype) {
  const bool on_cpu = facts.device.type == DeviceType::kCpu;
  trace::start(on_cpu ? std::function<void()>() : [&] { synchronize(facts.device); });
  std::vector<training::PendingStep> steps = learning.begin(rows);
  wait(steps);
  const std::vector<trace::Event> events = trace::stop();
  const reports::MachinePeak peak = measured_peak(facts, dtype);
  std::fprintf(stderr, "%s\n", reports::describe(reports::sum_up(events), 1, peak).c_str());
}

int64_t memory_bytes(Device device) {
  if (device.type == DeviceType::kCpu) return peak_resident_bytes();
  int64_t held = 0;
  for (const RegionUsage& region : pool(device).usage()) held += region.held;
  return held;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// The first two steps are not among those whose time counts, unless there are no others.
void print_result(const Options& options, const Training& trained, const HardwareFacts& facts, int ranks,
                  int replicas) {
  std::string losses, grad_norms;
  std::vector<double> seconds, speeds;
  for (size_t i = 0; i < trained.steps.size(); ++i) {
    const Result& step = trained.steps[i];
    losses += fmt::format("{}{:.5f}", i == 0 ? "" : ", ", step.loss);
    grad_norms += fmt::format("{}{:.5f}", i == 0 ? "" : ", ", step.grad_norm);
    if (i < 2 && i + 1 < trained.steps.size()) continue;
    seconds.push_back(step.seconds);
    speeds.push_back(static_cast<double>(step.tokens * replicas) / step.seconds);
  }
  if (seconds.empty())
    fail("{}: not one step of {} rows of {}", options.tokens, options.rows, options.length);
  const training::PipelineResult pipeline =
      trained.steps.back().pipeline.value_or(training::PipelineResult{});
  const double step_seconds = median(seconds), speed = trained.steps.back().flops / step_seconds;
  const int64_t memory = memory_bytes(facts.device);  // before the peak of products is measured
  std::printf(
      "{\"model\": \"%s\", \"ranks\": %d, \"dtype\": \"%s\", \"base_dtype\": \"%s\", \"tokens_per_second\": "
      "%.1f, "
      "\"tflops\": %.4g, \"of_peak\": %.3f, "
      "\"memory_gib\": %.3f, \"first_step_seconds\": %.2f, \"step_ms\": %.2f, "
      "\"pipeline_waiting\": %.4f, \"pipeline_bubble\": %.4f, "
      "\"checkpointing\": \"%s\", \"losses\": [%s], \"grad_norms\": [%s]}\n",
      options.model.c_str(), ranks, std::string(to_string(options.dtype)).c_str(),
      std::string(options.base_dtype ? to_string(*options.base_dtype) : to_string(options.dtype)).c_str(),
      median(speeds), speed / 1e12, speed / ranks / measured_products(facts, options.dtype),
      static_cast<double>(memory) / (1 << 30), trained.first_seconds, step_seconds * 1e3,
      pipeline.waiting_share(), pipeline.planned_share(), options.checkpointing.c_str(), losses.c_str(),
      grad_norms.c_str());
}

int run(const Options& options, collectives::Group& hosts) {
  const double start = seconds_now();
  if (options.threads > 0) set_num_threads(static_cast<int>(options.threads));
  models::BuildOptions build;
  build.dtype = options.dtype;
  build.base_dtype = options.base_dtype;
  build.facts = hardware_of_rank(options.device, hosts);
  const auto on_devices = collectives::device_group(hosts, build.facts.device);
  collectives::Group& ranks = on_devices ? *on_devices : hosts;
  if (!options.float32_state) build.format = {false, options.dtype, options.dtype};
  build.routers.balanced = options.balanced;
  const Mesh mesh = mesh_of(options, ranks.size());
  const parallel::MeshGroups groups(ranks, mesh);
  build.ranks = groups.model();
  if (options.pipeline > 1)
    build.ranks =
        parallel::with_parts(build.ranks, bench_config(options.model, options.length, options.layers),
                             static_cast<int>(options.pipeline_chunks), build.facts.device);
  if (!options.quantize.empty()) build.quantize = quantizers_of(options);
  if (!options.attention.empty()) build.ops.emplace().written["attn"] = options.attention;
  const auto model = bench_model(options.model, options.length, build, options.layers);
  optimizers::AdamWOptions optimizing;
  optimizing.format = build.format;
  Learning learning(*model, options, optimizing, groups);
  const std::unique_ptr<RowSource> source = row_source(options, model->decoder.config().vocab_size);
  if (!options.quantize.empty())
    calibration::calibrate(model->decoder, source->next(),
                           {.micro_batch_tokens = options.rows * options.length}, groups.data());
  if (options.pin) pin_threads(Pinning::kOn);
  const int64_t most_steps = options.tokens.empty() ? options.steps + (options.data.empty() ? 2 : 0)
                                                    : std::numeric_limits<int64_t>::max();
  const bool on_cpu = build.facts.device.type == DeviceType::kCpu;
  const Training trained = train(learning, *source, most_steps, on_cpu, start);
  if (options.profile) print_profile(learning, trained.rows, build.facts, options.dtype);
  if (ranks.rank() == 0) print_result(options, trained, build.facts, ranks.size(), groups.rows().size());
  return 0;
}

int main_checked(int argc, char** argv) {
  Options options;
  BenchArguments arguments(argc, argv, options.model);
  while (arguments.next()) {
    if (!(arguments.take("--device", options.device) ||
          arguments.take("--checkpointing", options.checkpointing) ||
          arguments.take("--attention", options.attention) || arguments.take("--tokens", options.tokens) ||
          arguments.take("--data", options.data) ||
          arguments.take("--write-documents", options.write_documents) ||
          arguments.take("--dtype", options.dtype) || arguments.take("--base-dtype", options.base_dtype) ||
          arguments.take("--rows", options.rows) || arguments.take("--length", options.length) ||
          arguments.take("--documents", options.documents) ||
          arguments.take("--micro-batches", options.micro_batches) ||
          arguments.take("--steps", options.steps, 0) || arguments.take("--threads", options.threads) ||
          arguments.take("--adapters", options.adapters, 0) || arguments.take("--adapter", options.adapter) ||
          arguments.take("--quantize", options.quantize) || arguments.take("--rank", options.rank) ||
          arguments.take("--lr", options.lr) || arguments.take("--layers", options.layers) ||
          arguments.take("--context", options.context) ||
          arguments.take("--context-method", options.context_method,
                         {{"auto", ContextMethod::kAuto},
                          {"ulysses", ContextMethod::kHeads},
                          {"ring", ContextMethod::kKeys},
                          {"usp", ContextMethod::kBoth}}) ||
          arguments.take("--tensor", options.tensor) || arguments.take("--expert", options.expert) ||
          arguments.take("--pipeline", options.pipeline) ||
          arguments.take("--pipeline-chunks", options.pipeline_chunks) ||
          arguments.take("--pipeline-schedule", options.pipeline_schedule,
                         {{"auto", recipes::PipelineSchedule::kAuto},
                          {"1f1b", recipes::PipelineSchedule::k1F1B},
                          {"interleaved", recipes::PipelineSchedule::kInterleaved},
                          {"zb_h1", recipes::PipelineSchedule::kZbH1}}) ||
          arguments.take("--shard-level", options.shard_level) ||
          arguments.take_flag("--float32-state", options.float32_state) ||
          arguments.take_flag("--expert-inputs", options.expert_inputs) ||
          arguments.take_flag("--balanced", options.balanced) || arguments.take_flag("--pin", options.pin) ||
          arguments.take_flag("--profile", options.profile) || arguments.take_flag("--shard", options.shard)))
      arguments.refuse();
  }
  if (!options.adapter.empty()) options.adapters = 1;
  int code = 0;
  collectives::launch(collectives::launched() ? "mpi" : "local", {},
                      [&](collectives::Group& ranks) { code = run(options, ranks); });
  return code;
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  return temper::run_benchmark("temper_bench_train", temper::kUsage, temper::main_checked, argc, argv);
}
