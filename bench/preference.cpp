// Speed of preference learning with one computation of a pair's prompt and with two, of an adapter of rank 16
// that is compared with its base (DPO), on random tokens and weights.
//   temper_bench_preference [SHAPE] [--device cuda] [--dtype bfloat16] [--prompt N] [--answer N] [--pairs N]
//                           [--pairs-at-once N] [--steps N] [--checkpointing full]
// Both are counted in tokens of prompts and answers as they stand in two rows, and take turns step by step.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <string>

#include "base/clock.h"
#include "base/random.h"
#include "bench/gpu/shapes.h"
#include "data/answers.h"
#include "device/transfer.h"
#include "models/adapter.h"
#include "training/adapter_trainer.h"
#include "training/preference.h"

namespace temper {
namespace {

struct Options {
  std::string shape = "small", device = "cpu", dtype = "float32", checkpointing = "none";
  int64_t prompt = 384, answer = 128, pairs = 4, at_once = 4, steps = 7;
  int64_t whole_tokens() const { return 2 * pairs * (prompt + answer); }
};

std::vector<data::PackedRow> random_pairs(const Options& options, int64_t vocab, uint64_t step, bool share) {
  const Random random(1, RandomPurpose::kData, step);
  std::vector<data::PackedRow> rows(static_cast<size_t>(options.pairs));
  uint64_t element = 0;
  const auto next = [&] {
    return static_cast<int32_t>(random.below(static_cast<uint64_t>(vocab), element++));
  };
  for (data::PackedRow& row : rows) {
    std::vector<data::Example> examples(2);
    std::vector<int32_t> prompt(static_cast<size_t>(options.prompt));
    std::generate(prompt.begin(), prompt.end(), next);
    for (data::Example& example : examples) {
      example.ids = prompt;
      example.loss_mask.assign(prompt.size(), 0);
      for (int64_t t = 0; t < options.answer; ++t) example.ids.push_back(next());
      example.loss_mask.resize(example.ids.size(), 1);
    }
    row = data::pack(
        std::vector<data::Document>{{0, 0, 0, data::join_answers(examples[0], examples[1], share)}});
  }
  return rows;
}

Json config_of_shape(const Options& options) {
  if (options.shape != "small") return config_of(bench_shape(options.shape), options.prompt + options.answer);
  return Json::Object{
      {"model_type", "qwen3"},      {"vocab_size", 32000},    {"hidden_size", 512},
      {"intermediate_size", 1536},  {"num_hidden_layers", 8}, {"num_attention_heads", 8},
      {"num_key_value_heads", 4},   {"head_dim", 64},         {"max_position_embeddings", 8192},
      {"tie_word_embeddings", true}};
}

// An adapter that learns from pairs, and what it needs.
struct Learner {
  Learner(models::Model& model, const Options& options, bool share_prompts)
      : share(share_prompts),
        micro_batch(options.at_once * (share ? 1 : 2) * (options.prompt + options.answer) +
                    (share ? options.at_once * options.answer : 0)),
        adapter(models::new_adapter(model, {.rank = 16}, 1, "")),
        optimizer(adapter->parameters(), model.decoder.ops(), {}),
        objective(model.decoder, losses::Dpo{}, micro_batch,
                  std::make_shared<training::ModelReference>(model.decoder, micro_batch)),
        trainer(model.decoder, training_options(options)) {}

  training::TrainerOptions training_options(const Options& options) const {
    training::TrainerOptions chosen;
    chosen.micro_batch_tokens = micro_batch;
    if (options.checkpointing == "full") chosen.checkpointing = training::Checkpointing::kFull;
    return chosen;
  }

  double step(const std::vector<data::PackedRow>& rows) {
    training::AdapterShare mine{adapter.get(), &optimizer, &rows, 1e-5};
    mine.objective = &objective;
    return trainer.begin({mine}).front().wait().loss;
  }

  bool share;
  int64_t micro_batch;
  std::unique_ptr<layers::Adapter> adapter;
  optimizers::AdamW optimizer;
  training::Preference objective;
  training::AdapterTrainer trainer;
  std::vector<double> seconds, cpu_seconds;
  double loss = 0;
};

// Of all threads: what a busy machine leaves comparable (with OMP_WAIT_POLICY=passive).
double cpu_seconds_now() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

Options options_of(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const auto text = [&](const char* name, std::string& value) {
      if (std::strcmp(argv[i], name) != 0 || i + 1 >= argc) return false;
      value = argv[++i];
      return true;
    };
    const auto number = [&](const char* name, int64_t& value) {
      std::string given;
      if (!text(name, given)) return false;
      value = std::max<int64_t>(1, std::atoll(given.c_str()));
      return true;
    };
    if (!text("--device", options.device) && !text("--dtype", options.dtype) &&
        !text("--checkpointing", options.checkpointing) && !number("--prompt", options.prompt) &&
        !number("--answer", options.answer) && !number("--pairs", options.pairs) &&
        !number("--pairs-at-once", options.at_once) && !number("--steps", options.steps))
      options.shape = argv[i];
  }
  return options;
}

int run(int argc, char** argv) {
  const Options options = options_of(argc, argv);
  models::BuildOptions build;
  build.dtype = *dtype_from_string(options.dtype);
  build.facts = detect_hardware(options.device);
  const auto model = models::build_model(config_of_shape(options), "bench", build);
  model->decoder.parameters().initialize(1, 0.02);
  Learner once(*model, options, true), twice(*model, options, false);
  const int64_t vocab = model->decoder.config().vocab_size;
  for (int64_t i = 0; i <= options.steps; ++i)
    for (Learner* learner : {&once, &twice}) {
      const auto rows = random_pairs(options, vocab, static_cast<uint64_t>(i), learner->share);
      synchronize(build.facts.device);
      const double start = seconds_now(), cpu_start = cpu_seconds_now();
      learner->loss = learner->step(rows);
      synchronize(build.facts.device);
      if (i == 0) continue;  // warms up
      learner->seconds.push_back(seconds_now() - start);
      learner->cpu_seconds.push_back(cpu_seconds_now() - cpu_start);
    }
  const auto speed = [&](const Learner& learner) {
    return static_cast<double>(options.whole_tokens()) / median(learner.seconds);
  };
  std::printf("%s\n", Json(Json::Object{{"shape", options.shape},
                                        {"device", build.facts.name},
                                        {"dtype", options.dtype},
                                        {"prompt", options.prompt},
                                        {"answer", options.answer},
                                        {"pairs", options.pairs},
                                        {"tokens_per_second_once", speed(once)},
                                        {"tokens_per_second_twice", speed(twice)},
                                        {"ratio", speed(once) / speed(twice)},
                                        {"cpu_ratio", median(twice.cpu_seconds) / median(once.cpu_seconds)},
                                        {"loss_once", once.loss},
                                        {"loss_twice", twice.loss}})
                          .dump()
                          .c_str());
  return 0;
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  return temper::run_benchmark("temper_bench_preference", temper::run, argc, argv);
}
