// Training speed of one fixed model: tokens/s, fraction of the measured matrix peak, and peak memory.
//   temper_bench_train [float32|bfloat16] [--steps N] [--threads N]
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "backends/peak.h"
#include "base/random.h"
#include "base/threads.h"
#include "models/model.h"
#include "optimizers/adamw.h"
#include "startup.h"
#include "training/trainer.h"

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

int run(DType dtype, int steps, int threads) {
  set_num_threads(threads);
  models::BuildOptions build;
  build.dtype = dtype;
  const auto model = models::build_model(model_config(), "bench", build);
  model->decoder.parameters().initialize(1, 0.02);
  optimizers::AdamW optimizer(model->decoder.parameters(), model->decoder.ops(), {});
  training::Trainer trainer(model->decoder, optimizer, {});
  const double peak = backends::measured_matmul_peak(dtype, threads);
  trainer.step(random_rows(0), 1e-4);  // warm-up: pages, caches, primitives
  std::vector<double> speeds, fractions;
  for (int i = 1; i <= steps; ++i) {
    const auto rows = random_rows(static_cast<uint64_t>(i));
    const auto start = std::chrono::steady_clock::now();
    const training::StepResult result = trainer.step(rows, 1e-4);
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
  int steps = 7, threads = 2;
  const char* only = nullptr;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--steps") == 0 && i + 1 < argc)
      steps = std::max(1, std::atoi(argv[++i]));
    else if (std::strcmp(argv[i], "--threads") == 0 && i + 1 < argc)
      threads = std::max(1, std::atoi(argv[++i]));
    else
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
    if (child == 0) std::exit(run(dtype, steps, threads));
    int status = 0;
    waitpid(child, &status, 0);
    if (status != 0) return 1;
  }
  return 0;
}
