// Speed of generation on a GPU, one sequence: random bfloat16 weights, a prompt of random tokens.
//   temper_bench_decode SHAPE [--prompt N] [--new N] [--runs N] [--temperature T] [--top-k N] [--top-p P]
//   [--eager FIELD]
// Prints one line of JSON, of the run with the median decoding speed. `gb_per_second` counts the weights and
// the part of the cache that a token reads, once each; `of_copy` is its share of the 4.27 TB/s at which an
// H200 copies.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/random.h"
#include "bench/gpu/shapes.h"
#include "models/model.h"
#include "rollout/generator.h"

namespace temper {
namespace {

constexpr double kCopyBytesPerSecond = 4.27e12;

struct Options {
  std::string shape = "qwen3-0.6b";
  int64_t prompt = 256, new_tokens = 256, runs = 5;
  ops::SamplingOptions sampling = {};
  ops::OpsConfig ops = {};
};

// All parameters but an embedding that is only looked up, and keys and values of the average length.
double bytes_per_token(const models::Model& model, const Options& options) {
  const layers::DecoderConfig& c = model.decoder.config();
  int64_t elements = model.decoder.parameters().num_elements();
  if (!c.tied_head) elements -= c.vocab_size * c.hidden_size;
  const double length = static_cast<double>(options.prompt) + static_cast<double>(options.new_tokens) / 2;
  const double cache = length * 2 * static_cast<double>(c.num_layers * c.num_kv_heads * c.head_dim);
  return (static_cast<double>(elements) + cache) * static_cast<double>(size_of(DType::kBF16));
}

int run(const Options& options) {
  models::BuildOptions build;
  build.dtype = DType::kBF16;
  build.facts = detect_hardware("cuda");
  build.ops = options.ops;
  const auto model = models::build_model(
      config_of(bench_shape(options.shape), options.prompt + options.new_tokens), "bench", build);
  model->decoder.parameters().initialize(1, 0.02);
  rollout::Generator generator(model->decoder);
  rollout::GenerateOptions generate;
  generate.max_new_tokens = options.new_tokens;
  generate.sampling = options.sampling;
  std::vector<rollout::Generation> runs;
  for (int64_t r = 0; r <= options.runs; ++r) {  // each its own prompt, the first to warm up
    const Random random(static_cast<uint64_t>(r), RandomPurpose::kData);
    std::vector<int32_t> prompt;
    for (int64_t i = 0; i < options.prompt; ++i)
      prompt.push_back(static_cast<int32_t>(
          random.below(static_cast<uint64_t>(model->decoder.config().vocab_size), static_cast<uint64_t>(i))));
    const rollout::Generation found = generator.generate(prompt, generate);
    if (r > 0) runs.push_back(found);
  }
  std::sort(runs.begin(), runs.end(),
            [](const auto& a, const auto& b) { return a.decode_seconds < b.decode_seconds; });
  const rollout::Generation& median = runs[runs.size() / 2];
  // The first token comes with the prompt.
  const double speed = static_cast<double>(median.ids.size() - 1) / median.decode_seconds;
  const double bytes = bytes_per_token(*model, options);
  std::printf(
      "{\"shape\": \"%s\", \"prompt_tokens\": %lld, \"new_tokens\": %zu, \"prefill_ms\": %.2f, "
      "\"tokens_per_second\": %.1f, \"token_ms\": %.3f, \"gb_per_token\": %.3f, \"gb_per_second\": %.0f, "
      "\"of_copy\": %.3f, \"temperature\": %.2f, \"captured\": %s}\n",
      options.shape.c_str(), static_cast<long long>(median.prompt_tokens), median.ids.size(),
      median.prefill_seconds * 1e3, speed, 1e3 / speed, bytes / 1e9, bytes * speed / 1e9,
      bytes * speed / kCopyBytesPerSecond, options.sampling.temperature,
      model->decoder.decodes_on_device() ? "true" : "false");
  return 0;
}

int main_checked(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i], value = i + 1 < argc ? argv[i + 1] : "";
    if (!argument.starts_with("--")) {
      options.shape = argument;
      continue;
    }
    ++i;
    if (argument == "--prompt")
      options.prompt = std::atoll(value.c_str());
    else if (argument == "--new")
      options.new_tokens = std::atoll(value.c_str());
    else if (argument == "--runs")
      options.runs = std::atoll(value.c_str());
    else if (argument == "--temperature")
      options.sampling.temperature = std::atof(value.c_str());
    else if (argument == "--top-k")
      options.sampling.top_k = std::atoll(value.c_str());
    else if (argument == "--top-p")
      options.sampling.top_p = std::atof(value.c_str());
    else if (argument == "--eager")
      options.ops.written[value] = "eager";
    else
      fail("unknown option '{}'", argument);
  }
  return run(options);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  return temper::run_benchmark("temper_bench_decode", temper::main_checked, argc, argv);
}
