// Training speed of one fixed model: tokens/s, fraction of the measured matrix peak, and peak memory.
//   temper_bench_train [float32|bfloat16] [--steps N] [--threads N] [--adapters N] [--rank N]
// With adapters the model is frozen, and each of them learns from its share of the rows.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>

#include "backends/peak.h"
#include "base/random.h"
#include "base/threads.h"
#include "models/adapter.h"
#include "optimizers/adamw.h"
#include "startup.h"
#include "training/adapter_trainer.h"

namespace temper {
namespace {

constexpr int64_t kVocab = 32000, kRowTokens = 512, kRows = 8;

Json model_config() {
  return Json::Object{
      {"model_type", "qwen3"},      {"vocab_size", kVocab},   {"hidden_size", 512},
      {"intermediate_size", 1536},  {"num_hidden_layers", 8}, {"num_attention_heads", 8},
      {"num_key_value_heads", 4},   {"head_dim", 64},         {"max_position_embeddings", 4096},
      {"tie_word_embeddings", true}};
}

std::vector<data::PackedRow> random_rows(uint64_t step) {
  const Random random(1, RandomPurpose::kData, step);
  std::vector<data::PackedRow> rows(kRows);
  uint64_t element = 0;
  for (data::PackedRow& row : rows) {
    for (int64_t t = 0; t < kRowTokens; ++t)
      row.ids.push_back(static_cast<int32_t>(random.below(kVocab, element++)));
    row.targets.assign(row.ids.begin() + 1, row.ids.end());
    row.targets.push_back(data::kIgnore);
    row.document_lengths = {kRowTokens};
  }
  return rows;
}

// Tokens and operations of a step.
struct Work {
  int64_t tokens = 0;
  double flops = 0;
};
using Step = std::function<Work(const std::vector<data::PackedRow>& rows)>;

Step whole_model(models::Model& model) {
  const auto optimizer = std::make_shared<optimizers::AdamW>(model.decoder.parameters(), model.decoder.ops(),
                                                             optimizers::AdamWOptions{});
  const auto trainer =
      std::make_shared<training::Trainer>(model.decoder, *optimizer, training::TrainerOptions{});
  return [optimizer, trainer](const std::vector<data::PackedRow>& rows) {
    const training::StepResult result = trainer->step(rows, 1e-4);
    return Work{result.tokens, result.flops};
  };
}

struct Learner {
  std::unique_ptr<layers::Adapter> adapter;
  std::unique_ptr<optimizers::AdamW> optimizer;
  std::vector<data::PackedRow> rows;
};

Step adapters_of(models::Model& model, int count, int rank) {
  const auto learners = std::make_shared<std::vector<Learner>>(static_cast<size_t>(count));
  for (size_t i = 0; i < learners->size(); ++i) {
    Learner& learner = (*learners)[i];
    learner.adapter = models::new_adapter(model, {.rank = rank}, i, "");
    learner.optimizer = std::make_unique<optimizers::AdamW>(learner.adapter->parameters(),
                                                            model.decoder.ops(), optimizers::AdamWOptions{});
  }
  return [learners, &model](const std::vector<data::PackedRow>& rows) {
    std::vector<training::AdapterShare> shares;
    for (Learner& learner : *learners) learner.rows.clear();
    for (size_t i = 0; i < rows.size(); ++i) (*learners)[i % learners->size()].rows.push_back(rows[i]);
    for (Learner& learner : *learners)
      shares.push_back({learner.adapter.get(), learner.optimizer.get(), &learner.rows, 1e-4});
    Work work;
    for (training::PendingStep& pending : training::AdapterTrainer(model.decoder, {}).begin(shares)) {
      const training::StepResult result = pending.wait();
      work.tokens += result.tokens;
      work.flops += result.flops;
    }
    return work;
  };
}

struct Arguments {
  int steps = 7, threads = 2, adapters = 0, rank = 16;
};

int run(DType dtype, const Arguments& arguments) {
  const auto [steps, threads, adapters, rank] = arguments;
  set_num_threads(threads);
  models::BuildOptions build;
  build.dtype = dtype;
  const auto model = models::build_model(model_config(), "bench", build);
  model->decoder.parameters().initialize(1, 0.02);
  const Step take_step = adapters == 0 ? whole_model(*model) : adapters_of(*model, adapters, rank);
  const double peak = backends::measured_matmul_peak(dtype, threads);
  take_step(random_rows(0));  // warm-up: pages, caches, primitives
  std::vector<double> speeds, fractions;
  for (int i = 1; i <= steps; ++i) {
    const auto rows = random_rows(static_cast<uint64_t>(i));
    const auto start = std::chrono::steady_clock::now();
    const Work result = take_step(rows);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    speeds.push_back(static_cast<double>(result.tokens) / seconds);
    fractions.push_back(result.flops / seconds / peak);
  }
  std::sort(speeds.begin(), speeds.end());
  std::sort(fractions.begin(), fractions.end());
  const auto middle = static_cast<size_t>(steps / 2);
  std::printf(
      "%-9s %d threads  %8.0f tokens/s (median of %d, best %.0f)  %5.1f %% of the measured peak of %.0f "
      "GFLOP/s"
      "  peak memory %.0f MiB\n",
      std::string(to_string(dtype)).c_str(), threads, speeds[middle], steps, speeds.back(),
      100 * fractions[middle], peak / 1e9, static_cast<double>(peak_resident_bytes()) / (1 << 20));
  return 0;
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  using namespace temper;
  Arguments arguments;
  const char* only = nullptr;
  for (int i = 1; i < argc; ++i) {
    const auto takes = [&](const char* name, int& value, int lowest) {
      if (std::strcmp(argv[i], name) != 0 || i + 1 >= argc) return false;
      value = std::max(lowest, std::atoi(argv[++i]));
      return true;
    };
    if (!takes("--steps", arguments.steps, 1) && !takes("--threads", arguments.threads, 1) &&
        !takes("--adapters", arguments.adapters, 0) && !takes("--rank", arguments.rank, 1))
      only = argv[i];
  }
  register_everything();
  if (only == nullptr)
    std::printf(
        "qwen3: vocabulary 32000, hidden 512, 8 layers, 8 heads, 4 KV heads; 8 rows of 512 tokens a step\n");
  std::fflush(stdout);
  // One process per dtype, so that each one's peak memory is its own.
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    if (only != nullptr && dtype_from_string(only) != dtype) continue;
    const pid_t child = fork();
    if (child == 0) std::exit(run(dtype, arguments));
    int status = 0;
    waitpid(child, &status, 0);
    if (status != 0) return 1;
  }
  return 0;
}
