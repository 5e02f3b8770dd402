#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string>

#include "bench/arguments.h"
#include "bench/machine_peak.h"
#include "bench/shapes.h"
#include "rollout/engine.h"

namespace temper {
namespace {

constexpr const char* kUsage =
    R"(Speed of generation, one sequence: prompts of random tokens, or those of a file of int32 one after the
other.
  temper_bench_decode [SHAPE | FOLDER] [--device D] [--dtype T] [--prompt N] [--tokens FILE] [--new N]
                      [--runs N] [--threads N] [--temperature T] [--top-k N] [--top-p P] [--eager FIELD]
                      [--base-dtype float8_e4m3fn] [--chunk N] [--page N]
Prints one line of JSON, of the run with the median decoding speed; the ids are those of the last run.
`gb_per_second` counts the weights (of experts those that are chosen) and the part of the cache that a
token reads, once each; `of_peak` is its share of the speed of a copy, measured on the same device at the
end of the run.
)";

struct Options {
  std::string model = "qwen3-0.6b", device = "cpu", tokens;
  DType dtype = DType::kBF16;
  std::optional<primitives::FrozenFormat> base_dtype;
  int64_t prompt = 256, new_tokens = 256, runs = 5, threads = 0, chunk = 2048, page = 16;
  ops::SamplingOptions sampling = {};
  ops::OpsConfig ops = {};
};

// The part of the experts' matrices that a token's experts are.
double chosen_part(const layers::DecoderConfig& config) {
  for (const layers::Block& block : config.blocks)
    if (const ops::Routing* routing = block.channel->routing())
      return static_cast<double>(routing->top_k) / static_cast<double>(routing->experts);
  return 1;
}

// All parameters as they are kept, but an embedding that is only looked up and experts that are not chosen,
// and keys and values, or latents, of the average length.
double bytes_per_token(const models::Model& model, const Options& options) {
  const layers::DecoderConfig& c = model.decoder.config();
  const layers::ParameterStore& parameters = model.decoder.parameters();
  double weights = 0;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const bool experts = parameters.spec(i).lora == LoraRole::kExperts;
    weights += static_cast<double>(parameters[i].value.bytes()) * (experts ? chosen_part(c) : 1);
  }
  if (!c.tied_head) weights -= static_cast<double>(parameters.at("embedding.weight").value.bytes());
  const double length = static_cast<double>(options.prompt) + static_cast<double>(options.new_tokens) / 2;
  double of_token = 0;  // what attention keeps; states that do not grow are left out
  for (const layers::Block& block : c.blocks) {
    const Json sizes(block.mixer->describe());
    const auto size = [&](const char* key) { return static_cast<double>(sizes.at(key).as_int()); };
    if (sizes.find("kv_lora_rank") != nullptr)
      of_token += size("kv_lora_rank") + size("qk_rope_head_dim");
    else if (sizes.find("num_key_value_heads") != nullptr)
      of_token += 2 * size("num_key_value_heads") * size("head_dim");
  }
  return weights + length * of_token * static_cast<double>(size_of(options.dtype));
}

std::vector<int32_t> prompt_of(const Options& options, int64_t vocab, int64_t run) {
  std::vector<int32_t> prompt(static_cast<size_t>(options.prompt));
  if (!options.tokens.empty()) {
    std::ifstream file(options.tokens, std::ios::binary);
    file.seekg(run * options.prompt * 4);
    if (!file.read(reinterpret_cast<char*>(prompt.data()), options.prompt * 4))
      fail("{}: there are no {} prompts of {} tokens in it", options.tokens, options.runs + 1,
           options.prompt);
    return prompt;
  }
  const Random random(static_cast<uint64_t>(run), RandomPurpose::kData);
  for (size_t i = 0; i < prompt.size(); ++i)
    prompt[i] = static_cast<int32_t>(random.below(static_cast<uint64_t>(vocab), i));
  return prompt;
}

struct Timed {
  std::vector<int32_t> ids;
  double prompt_seconds = 0, answer_seconds = 0;  // until the first token, and after it
};

Timed answer(rollout::Engine& engine, std::vector<int32_t> prompt, const Options& options) {
  rollout::Request request;
  request.prompt = std::move(prompt);
  request.max_new_tokens = options.new_tokens;
  request.sampling = options.sampling;
  request.log_prob_temperature = 0;
  Timed timed;
  const double start = seconds_now();
  engine.add(std::move(request));
  while (engine.step())
    if (timed.prompt_seconds == 0 && !engine.new_tokens().empty())
      timed.prompt_seconds = seconds_now() - start;
  timed.answer_seconds = seconds_now() - start - timed.prompt_seconds;
  timed.ids = std::move(engine.take_finished().front().ids);
  return timed;
}

int run(const Options& options) {
  if (options.threads > 0) set_num_threads(static_cast<int>(options.threads));
  models::BuildOptions build;
  build.dtype = options.dtype;
  build.base_dtype = options.base_dtype;
  build.facts = detect_hardware(options.device);
  build.ops = options.ops;
  const auto model = bench_model(options.model, options.prompt + options.new_tokens, build);
  rollout::EngineOptions engine_options = rollout::options_of_conversation();
  engine_options.page_tokens = options.page;
  engine_options.cache_tokens = options.page;
  engine_options.chunk_tokens = options.chunk;
  rollout::Engine engine(model->decoder, engine_options);
  std::vector<Timed> runs;
  for (int64_t r = 0; r <= options.runs; ++r) {  // each its own prompt, the first to warm up
    Timed found = answer(engine, prompt_of(options, model->decoder.config().vocab_size, r), options);
    if (r > 0) runs.push_back(std::move(found));
  }
  std::string ids;  // of the last run
  for (const int32_t id : runs.back().ids) ids += fmt::format("{}{}", ids.empty() ? "" : ", ", id);
  std::sort(runs.begin(), runs.end(),
            [](const auto& a, const auto& b) { return a.answer_seconds < b.answer_seconds; });
  const Timed& median = runs[runs.size() / 2];
  // The first token comes with the prompt.
  const double speed = static_cast<double>(median.ids.size() - 1) / median.answer_seconds;
  const double bytes = bytes_per_token(*model, options);
  const int64_t memory = peak_resident_bytes();  // before the speed of memory is measured
  const double peak = measured_copy(build.facts);
  std::printf(
      "{\"model\": \"%s\", \"prompt_tokens\": %lld, \"new_tokens\": %zu, \"prefill_ms\": %.2f, "
      "\"tokens_per_second\": %.1f, \"token_ms\": %.3f, \"gb_per_token\": %.3f, \"gb_per_second\": %.1f, "
      "\"of_peak\": %.3f, \"resident_gib\": %.3f, \"temperature\": %.2f, \"captured\": %s, \"ids\": [%s]}\n",
      options.model.c_str(), static_cast<long long>(options.prompt), median.ids.size(),
      median.prompt_seconds * 1e3, speed, 1e3 / speed, bytes / 1e9, bytes * speed / 1e9, bytes * speed / peak,
      static_cast<double>(memory) / (1 << 30), options.sampling.temperature,
      model->decoder.batches_on_device() ? "true" : "false", ids.c_str());
  return 0;
}

int main_checked(int argc, char** argv) {
  Options options;
  std::string eager;
  BenchArguments arguments(argc, argv, options.model);
  while (arguments.next()) {
    if (arguments.take("--eager", eager))
      options.ops.written[eager] = "eager";
    else if (!(arguments.take("--device", options.device) || arguments.take("--dtype", options.dtype) ||
               arguments.take("--base-dtype", options.base_dtype) ||
               arguments.take("--prompt", options.prompt) || arguments.take("--tokens", options.tokens) ||
               arguments.take("--new", options.new_tokens) || arguments.take("--runs", options.runs) ||
               arguments.take("--threads", options.threads) || arguments.take("--chunk", options.chunk) ||
               arguments.take("--page", options.page) ||
               arguments.take("--temperature", options.sampling.temperature) ||
               arguments.take("--top-k", options.sampling.top_k, 0) ||
               arguments.take("--top-p", options.sampling.top_p)))
      arguments.refuse();
  }
  return run(options);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  return temper::run_benchmark("temper_bench_decode", temper::kUsage, temper::main_checked, argc, argv);
}
