#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>

#include "base/clock.h"
#include "base/random.h"
#include "base/threads/threads.h"
#include "bench/arguments.h"
#include "data/rows/pack.h"
#include "device/transfer.h"
#include "models/model.h"
#include "optimizers/adamw.h"
#include "rollout/engine.h"
#include "training/trainer.h"

namespace temper {
namespace {

constexpr const char* kUsage =
    R"(What hybrids of attention and the gated delta rule promise, each as two sides that take turns.
  temper_bench_hybrid decode  [--short N] [--long N] [--new N]
  temper_bench_hybrid packing [--documents N] [--length N]
                              [--device D] [--dtype T] [--hidden N] [--layers N] [--runs N] [--threads N]
`decode`: a token's step after --short and after --long tokens, in a model whose layers all have the delta
rule, so that nothing in it should depend on the length. `packing`: a training step of the same documents,
of --length / 4 to --length tokens, packed in rows of --length and each in a row of its own that is padded
to --length; three layers of the delta rule to one of attention. Prints one line of JSON: medians, the
ratio of their times, that of processor times, which what else a machine does disturbs less (with
OMP_WAIT_POLICY=passive), and for packing the ratio of tokens. The exit code is 1 when packed and padded
losses differ by more than roundings.
)";

struct Options {
  std::string measurement = "decode", device = "cpu";
  DType dtype = DType::kBF16;
  int64_t hidden = 512, layers = 4, runs = 7, threads = 0;
  int64_t shorter = 256, longer = 32768, new_tokens = 64;
  int64_t documents = 32, length = 1024;
};

constexpr int64_t kVocab = 512;

Json config_of(const Options& o, bool with_attention) {
  Json::Array types;
  for (int64_t i = 0; i < o.layers; ++i)
    types.emplace_back(with_attention && i % 4 == 3 ? "full_attention" : "linear_attention");
  const int64_t heads = std::max<int64_t>(o.hidden / 128, 1);
  return Json::Object{{"model_type", "qwen3_5_text"},
                      {"vocab_size", kVocab},
                      {"hidden_size", o.hidden},
                      {"intermediate_size", 3 * o.hidden},
                      {"num_hidden_layers", o.layers},
                      {"num_attention_heads", heads},
                      {"num_key_value_heads", heads},
                      {"head_dim", 128},
                      {"linear_num_key_heads", heads},
                      {"linear_num_value_heads", 2 * heads},
                      {"linear_key_head_dim", 128},
                      {"linear_value_head_dim", 128},
                      {"linear_conv_kernel_dim", 4},
                      {"layer_types", types},
                      {"max_position_embeddings", 1 << 20},
                      {"tie_word_embeddings", true}};
}

std::unique_ptr<models::Model> random_model(const Options& options, bool with_attention) {
  models::BuildOptions build;
  build.dtype = options.dtype;
  build.facts = detect_hardware(options.device);
  auto model = models::build_model(config_of(options, with_attention), "random", build);
  model->decoder.parameters().initialize(1, 0.02);
  return model;
}

// Of all threads.
double cpu_seconds_now() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Side {
  std::vector<double> seconds, cpu_seconds;
  void add(double wall, double cpu) {
    seconds.push_back(wall);
    cpu_seconds.push_back(cpu);
  }
};

// How much longer the first takes, turn by turn.
double ratio(const std::vector<double>& first, const std::vector<double>& second) {
  std::vector<double> each;
  for (size_t i = 0; i < first.size(); ++i) each.push_back(first[i] / second[i]);
  return median(each);
}

Json report(const Options& options, const models::Model& model, const Side& first, const Side& second) {
  return Json::Object{{"measurement", options.measurement},
                      {"device", model.decoder.device().type == DeviceType::kCpu ? "cpu" : options.device},
                      {"dtype", std::string(to_string(options.dtype))},
                      {"hidden", options.hidden},
                      {"layers", options.layers},
                      {"ratio", ratio(first.seconds, second.seconds)},
                      {"cpu_ratio", ratio(first.cpu_seconds, second.cpu_seconds)}};
}

int run_decode(const Options& options) {
  const auto model = random_model(options, false);
  struct Text {
    std::unique_ptr<rollout::Engine> engine;
    std::vector<int32_t> ids;  // its prompt, then what was generated behind it
    Side steps = {};
  } texts[2];
  const Random random(1, RandomPurpose::kData);
  for (Text& text : texts) {
    text.engine = std::make_unique<rollout::Engine>(model->decoder, rollout::options_of_conversation());
    for (int64_t i = 0; i < (&text == texts ? options.shorter : options.longer); ++i)
      text.ids.push_back(static_cast<int32_t>(random.below(kVocab, static_cast<uint64_t>(i))));
  }
  for (int64_t i = 0; i <= options.runs; ++i)
    for (Text& text : texts) {
      double wall = 0, cpu = 0;  // when the first token, which comes with the prompt, is there
      rollout::Request request;
      request.prompt = text.ids;
      request.max_new_tokens = options.new_tokens;
      text.engine->add(std::move(request));
      while (text.engine->step())
        if (wall == 0 && !text.engine->new_tokens().empty()) wall = seconds_now(), cpu = cpu_seconds_now();
      const rollout::Completion made = std::move(text.engine->take_finished().front());
      text.ids.insert(text.ids.end(), made.ids.begin(), made.ids.end());
      const auto steps = static_cast<double>(made.ids.size() - 1);
      if (i > 0)  // the first warms up
        text.steps.add((seconds_now() - wall) / steps, (cpu_seconds_now() - cpu) / steps);
    }
  Json found = report(options, *model, texts[1].steps, texts[0].steps);
  found.set("short", options.shorter);
  found.set("long", options.longer);
  found.set("short_step_ms", 1e3 * median(texts[0].steps.seconds));
  found.set("long_step_ms", 1e3 * median(texts[1].steps.seconds));
  std::printf("%s\n", found.dump().c_str());
  return 0;
}

using Rows = std::vector<data::PackedRow>;

// At least `at_least` tokens: the row's document is padded to them.
data::PackedRow row_of(std::span<const data::Document> documents, int64_t at_least) {
  data::PackedRow row = data::pack(documents);
  const int64_t padding = std::max<int64_t>(at_least - row.size(), 0);
  row.ids.resize(row.ids.size() + static_cast<size_t>(padding));
  row.targets.resize(row.ids.size(), data::kIgnore);
  row.document_lengths.back() += padding;
  return row;
}

data::DocumentGroup random_documents(const Options& options) {
  const Random random(1, RandomPurpose::kData);
  uint64_t element = 0;
  const auto below = [&](int64_t bound) {
    return static_cast<int64_t>(random.below(static_cast<uint64_t>(bound), element++));
  };
  data::DocumentGroup documents(static_cast<size_t>(options.documents));
  for (data::Document& document : documents) {
    const int64_t least = std::max<int64_t>(options.length / 4, 2);
    document.example.ids.resize(static_cast<size_t>(least + below(options.length - least + 1)));
    for (int32_t& id : document.example.ids) id = static_cast<int32_t>(below(kVocab));
    document.example.loss_mask.assign(document.example.ids.size(), 1);
  }
  return documents;
}

// One document after the other, as many in a row as it has room for.
Rows packed_rows(const data::DocumentGroup& documents, int64_t length) {
  Rows rows;
  for (size_t first = 0; first < documents.size();) {
    int64_t tokens = 0;
    size_t end = first;
    for (; end < documents.size(); ++end) {
      const auto more = static_cast<int64_t>(documents[end].example.ids.size());
      if (end > first && tokens + more > length) break;
      tokens += more;
    }
    rows.push_back(row_of(std::span(documents).subspan(first, end - first), 0));
    first = end;
  }
  return rows;
}

Rows padded_rows(const data::DocumentGroup& documents, int64_t length) {
  Rows rows;
  for (const data::Document& document : documents) rows.push_back(row_of({&document, 1}, length));
  return rows;
}

int64_t tokens_of(const Rows& rows) {
  int64_t tokens = 0;
  for (const data::PackedRow& row : rows) tokens += row.size();
  return tokens;
}

int run_packing(const Options& options) {
  const auto model = random_model(options, true);
  const data::DocumentGroup documents = random_documents(options);
  struct Rowed {
    Rows rows;
    double loss = 0;
    Side steps = {};
  } packed{packed_rows(documents, options.length)}, padded{padded_rows(documents, options.length)};
  optimizers::AdamW optimizer(model->decoder.parameters(), model->decoder.ops(), {});
  training::TrainerOptions training;
  training.micro_batch_tokens = 4 * options.length;
  training::Trainer trainer(model->decoder, optimizer, training);
  const Device device = model->decoder.device();
  for (int64_t i = 0; i < options.runs + 2; ++i)
    for (Rowed* side : {&packed, &padded}) {
      synchronize(device);
      const double wall = seconds_now(), cpu = cpu_seconds_now();
      side->loss = trainer.begin(side->rows, 0).wait().loss;  // at a rate of 0 the weights stay
      synchronize(device);
      if (i >= 2) side->steps.add(seconds_now() - wall, cpu_seconds_now() - cpu);
    }
  const double tokens =
                   static_cast<double>(tokens_of(padded.rows)) / static_cast<double>(tokens_of(packed.rows)),
               apart = std::abs(packed.loss - padded.loss) / std::abs(padded.loss);
  Json found = report(options, *model, padded.steps, packed.steps);
  found.set("tokens_ratio", tokens);
  found.set("packed_rows", static_cast<int64_t>(packed.rows.size()));
  found.set("padded_rows", static_cast<int64_t>(padded.rows.size()));
  found.set("packed_step_ms", 1e3 * median(packed.steps.seconds));
  found.set("padded_step_ms", 1e3 * median(padded.steps.seconds));
  found.set("losses_apart", apart);
  std::printf("%s\n", found.dump().c_str());
  if (apart <= (options.dtype == DType::kF32 ? 1e-5 : 1e-3)) return 0;
  std::fprintf(stderr, "temper_bench_hybrid: packed and padded losses differ by %.1e\n", apart);
  return 1;
}

int run(int argc, char** argv) {
  Options options;
  BenchArguments arguments(argc, argv, options.measurement);
  while (arguments.next()) {
    if (!(arguments.take("--device", options.device) || arguments.take("--dtype", options.dtype) ||
          arguments.take("--hidden", options.hidden) || arguments.take("--layers", options.layers) ||
          arguments.take("--runs", options.runs) || arguments.take("--threads", options.threads) ||
          arguments.take("--short", options.shorter) || arguments.take("--long", options.longer) ||
          arguments.take("--new", options.new_tokens, 2) ||
          arguments.take("--documents", options.documents) || arguments.take("--length", options.length, 4)))
      arguments.refuse();
  }
  if (options.threads > 0) set_num_threads(static_cast<int>(options.threads));
  if (options.measurement == "decode") return run_decode(options);
  if (options.measurement == "packing") return run_packing(options);
  fail("unknown measurement '{}', use decode or packing", options.measurement);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  return temper::run_benchmark("temper_bench_hybrid", temper::kUsage, temper::run, argc, argv);
}
