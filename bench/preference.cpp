#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <string>

#include "base/clock.h"
#include "base/random.h"
#include "bench/arguments.h"
#include "bench/shapes.h"
#include "data/rows/answers.h"
#include "device/transfer.h"
#include "models/adapter.h"
#include "training/adapter_trainer.h"
#include "training/objectives/preference.h"

namespace temper {
namespace {

constexpr const char* kUsage =
    R"(Speed of preference learning with one computation of a pair's prompt and with two, of an adapter of rank 16
that is compared with its base (DPO), on random tokens and weights.
  temper_bench_preference [SHAPE | FOLDER] [--device cuda] [--dtype bfloat16] [--prompt N] [--answer N]
                          [--pairs N] [--pairs-at-once N] [--steps N] [--checkpointing full]
Both are counted in tokens of prompts and answers as they stand in two rows, and take turns step by step;
the exit code is 1 when their last losses differ by more than roundings.
)";

struct Options {
  std::string model = "small", device = "cpu", checkpointing = "none";
  DType dtype = DType::kF32;
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

// An adapter that learns from pairs, and what it needs.
struct Learner {
  Learner(models::Model& model, const Options& options, bool share_prompts)
      : share(share_prompts),
        micro_batch(options.at_once * random_pairs(options, 1, 0, share).front().size()),
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

// What roundings may do to the loss, relative to it: answers meet their prompt in other blocks of attention.
// A token's log-probability, about log(vocab), moves by an eps of it, a sum over both answers by its square
// root, and the loss of DPO (log 2 at first, slope beta / 2) by that of the mean over pairs.
double most_apart(const Options& options, int64_t vocab) {
  const double eps =
      options.dtype == DType::kF32 ? std::ldexp(1, -20) : std::ldexp(1, -8);  // of sums in float32
  const double token = eps * std::log(static_cast<double>(vocab));
  const double sums = std::sqrt(2 * static_cast<double>(options.answer) / static_cast<double>(options.pairs));
  return losses::Dpo{}.beta / 2 * token * sums / std::log(2);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

int run(int argc, char** argv) {
  Options options;
  BenchArguments arguments(argc, argv, options.model);
  while (arguments.next()) {
    if (!(arguments.take("--device", options.device) || arguments.take("--dtype", options.dtype) ||
          arguments.take("--checkpointing", options.checkpointing) ||
          arguments.take("--prompt", options.prompt) || arguments.take("--answer", options.answer) ||
          arguments.take("--pairs", options.pairs) || arguments.take("--pairs-at-once", options.at_once) ||
          arguments.take("--steps", options.steps)))
      arguments.refuse();
  }
  models::BuildOptions build;
  build.dtype = options.dtype;
  build.facts = detect_hardware(options.device);
  const auto model = bench_model(options.model, options.prompt + options.answer, build);
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
  const double apart = std::abs(once.loss - twice.loss) / std::abs(twice.loss);
  std::printf("%s\n", Json(Json::Object{{"model", options.model},
                                        {"device", build.facts.name},
                                        {"dtype", std::string(to_string(options.dtype))},
                                        {"prompt", options.prompt},
                                        {"answer", options.answer},
                                        {"pairs", options.pairs},
                                        {"tokens_per_second_once", speed(once)},
                                        {"tokens_per_second_twice", speed(twice)},
                                        {"ratio", speed(once) / speed(twice)},
                                        {"cpu_ratio", median(twice.cpu_seconds) / median(once.cpu_seconds)},
                                        {"loss_once", once.loss},
                                        {"loss_twice", twice.loss},
                                        {"losses_apart", apart}})
                          .dump()
                          .c_str());
  const double most = most_apart(options, vocab);
  if (apart <= most) return 0;
  std::fprintf(stderr, "temper_bench_preference: the losses differ by %.1e, more than %.0e\n", apart, most);
  return 1;
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  return temper::run_benchmark("temper_bench_preference", temper::kUsage, temper::run, argc, argv);
}
