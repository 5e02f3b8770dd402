// Training speed of known shapes on a GPU: random weights, full fine-tuning, rows of random tokens.
//   temper_bench_gpu SHAPE [--rows N] [--length N] [--micro-batches N] [--steps N] [--checkpointing
//   none|selective|full]
//                    [--attention KERNEL] [--float32-state] [--losses]
// Prints one line of JSON. Everything is bfloat16 unless --float32-state asks for float32 gradients, moments
// and master weights.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/clock.h"
#include "base/random.h"
#include "bench/gpu/shapes.h"
#include "device/transfer.h"
#include "models/model.h"
#include "optimizers/adamw.h"
#include "training/trainer.h"

namespace temper {
namespace {

struct Options {
  std::string shape = "qwen3-0.6b", checkpointing = "none";
  int64_t rows = 4, length = 4096, micro_batches = 1, steps = 10;
  std::string attention;
  bool float32_state = false, losses = false;
};

std::vector<data::PackedRow> random_rows(const Options& options, int64_t vocab, uint64_t step) {
  const Random random(1, RandomPurpose::kData, step);
  std::vector<data::PackedRow> rows(static_cast<size_t>(options.rows * options.micro_batches));
  uint64_t element = 0;
  for (data::PackedRow& row : rows) {
    for (int64_t t = 0; t < options.length; ++t)
      row.ids.push_back(static_cast<int32_t>(random.below(static_cast<uint64_t>(vocab), element++)));
    row.targets.assign(row.ids.begin() + 1, row.ids.end());
    row.targets.push_back(data::kIgnore);
    row.document_lengths = {options.length};
  }
  return rows;
}

training::Checkpointing checkpointing_of(const std::string& name) {
  if (name == "full") return training::Checkpointing::kFull;
  return name == "selective" ? training::Checkpointing::kSelective : training::Checkpointing::kNone;
}

int run(const BenchShape& shape, const Options& options) {
  const double start = seconds_now();
  models::BuildOptions build;
  build.dtype = DType::kBF16;
  build.facts = detect_hardware("cuda");
  if (!options.float32_state) build.format = {false, DType::kBF16, DType::kBF16};
  if (!options.attention.empty()) {
    build.ops.emplace();
    build.ops->written["attn"] = options.attention;
  }
  const auto model = models::build_model(config_of(shape, options.length), "bench", build);
  model->decoder.parameters().initialize(1, 0.02);
  optimizers::AdamWOptions optimizing;
  optimizing.format = build.format;
  optimizers::AdamW optimizer(model->decoder.parameters(), model->decoder.ops(), optimizing);
  training::TrainerOptions training_options;
  training_options.micro_batch_tokens = options.rows * options.length;
  training_options.checkpointing = checkpointing_of(options.checkpointing);
  training::Trainer trainer(model->decoder, optimizer, training_options);
  const double first_loss = trainer.step(random_rows(options, shape.vocab, 0), 1e-5).loss;
  const double first = seconds_now() - start;
  if (options.losses) std::fprintf(stderr, "%.6f\n", first_loss);

  std::vector<double> seconds;
  training::StepResult last;
  std::optional<training::PendingStep> pending;
  double before = 0;
  const auto finish = [&] {
    if (!pending) return;
    last = pending->wait();
    if (options.losses) std::fprintf(stderr, "%.6f\n", last.loss);
    const double now = seconds_now();
    if (before > 0) seconds.push_back(now - before);
    before = now;
  };
  for (int64_t i = 1; i <= options.steps + 1; ++i) {
    training::PendingStep next =
        trainer.begin(random_rows(options, shape.vocab, static_cast<uint64_t>(i)), 1e-5);
    finish();
    pending = std::move(next);
  }
  finish();
  std::sort(seconds.begin(), seconds.end());
  const double median = seconds[seconds.size() / 2];
  int64_t peak = 0;
  for (const RegionUsage& region : pool(build.facts.device).usage()) peak += region.held;
  std::printf(
      "{\"shape\": \"%s\", \"tokens_per_second\": %.0f, \"tflops\": %.1f, \"memory_gib\": %.2f, "
      "\"first_step_seconds\": %.2f, \"step_ms\": %.2f, \"best_ms\": %.2f, \"checkpointing\": \"%s\", "
      "\"loss\": %.4f}\n",
      shape.name, static_cast<double>(last.tokens) / median, last.flops / median / 1e12,
      static_cast<double>(peak) / (1 << 30), first, median * 1e3, seconds.front() * 1e3,
      options.checkpointing.c_str(), last.loss);
  if (std::getenv("TEMPER_MEMORY") != nullptr)
    std::fprintf(stderr, "%s\n", memory_table(pool(build.facts.device).usage()).c_str());
  return 0;
}

int main_checked(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const auto number = [&](int64_t& value) { value = i + 1 < argc ? std::atoll(argv[++i]) : value; };
    if (argument == "--rows")
      number(options.rows);
    else if (argument == "--length")
      number(options.length);
    else if (argument == "--micro-batches")
      number(options.micro_batches);
    else if (argument == "--steps")
      number(options.steps);
    else if (argument == "--checkpointing" && i + 1 < argc)
      options.checkpointing = argv[++i];
    else if (argument == "--attention" && i + 1 < argc)
      options.attention = argv[++i];
    else if (argument == "--float32-state")
      options.float32_state = true;
    else if (argument == "--losses")
      options.losses = true;
    else
      options.shape = argument;
  }
  return run(bench_shape(options.shape), options);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  return temper::run_benchmark("temper_bench_gpu", temper::main_checked, argc, argv);
}
