#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string>

#include "bench/arguments.h"
#include "bench/machine_peak.h"
#include "bench/shapes.h"
#include "rollout/batch_invariant.h"
#include "rollout/engine.h"

namespace temper {
namespace {

constexpr const char* kUsage =
    R"(Speed of rollouts: many requests of random tokens at once, each with as many new tokens as it is asked for.
  temper_bench_rollout [SHAPE | FOLDER] --job FILE [--device D] [--dtype T] [--running N] [--chunk N]
                       [--page N] [--runs N] [--threads N] [--temperature T] [--top-p P]
                       [--kernels usual | batch-invariant]
A line of FILE is a request: the tokens of its prompt, and of its answer (bench/gpu/rollout_job.py prints
the job that nano-vLLM's benchmark runs). Prints one line of JSON, of the run with the median speed.
`floor_tokens_per_second` counts what must be read of memory: all weights in each pass with a token of an
answer, and keys and values of all tokens that it sees, at the speed of a copy, measured on the same device
at the end.
)";

struct Job {
  int64_t prompt = 0, answer = 0;
};

struct Options {
  std::string model = "qwen3-0.6b", device = "cpu", job, kernels = "usual";
  DType dtype = DType::kBF16;
  int64_t running = 256, chunk = 8192, page = 16, runs = 3, threads = 0;
  double temperature = 0.6, top_p = 1;
};

std::vector<Job> read_job(const std::string& path) {
  std::ifstream file(path);
  if (!file) fail("{}: cannot be read; --job needs a file with a line PROMPT ANSWER for each request", path);
  std::vector<Job> job;
  for (Job each; file >> each.prompt >> each.answer;) job.push_back(each);
  if (job.empty())
    fail("{}: holds no request; a line has the numbers of tokens of a prompt and of its answer", path);
  return job;
}

struct Result {
  double seconds = 0, first = 0;  // until all prompts were computed
  int64_t passes = 0;
};

Result run_once(const layers::Decoder& model, const std::vector<Job>& job, const Options& options,
                uint64_t seed) {
  rollout::EngineOptions engine_options;
  engine_options.page_tokens = options.page;
  engine_options.max_running = options.running;
  engine_options.chunk_tokens = options.chunk;
  engine_options.cache_tokens = options.page;
  for (const Job& each : job)
    engine_options.cache_tokens += (each.prompt + each.answer + options.page) / options.page * options.page;
  rollout::Engine engine(model, engine_options);
  const Random random(seed, RandomPurpose::kData);
  uint64_t index = 0;
  int64_t prompts = 0;
  for (const Job& each : job) {
    rollout::Request request;
    for (int64_t i = 0; i < each.prompt; ++i)
      request.prompt.push_back(
          static_cast<int32_t>(random.below(static_cast<uint64_t>(model.config().vocab_size), index++)));
    request.sampling = {.temperature = options.temperature, .top_p = options.top_p, .seed = seed + index};
    request.max_new_tokens = each.answer;
    engine.add(std::move(request));
    prompts += each.prompt;
  }
  Result result;
  const double start = seconds_now();
  while (engine.step()) {
    ++result.passes;
    if (result.first == 0 && engine.counts().computed - engine.counts().sampled >= prompts - std::ssize(job))
      result.first = seconds_now() - start;
  }
  result.seconds = seconds_now() - start;
  return result;
}

// Bytes that the job's answers need, with all requests at once.
double bytes_of(const models::Model& model, const std::vector<Job>& job, const Options& options) {
  const layers::DecoderConfig& c = model.decoder.config();
  double of_token = 0, seen = 0, weights = 0;
  for (const layers::Block& block : c.blocks) {
    const Json sizes(block.mixer->describe());
    const auto size = [&](const char* key) { return static_cast<double>(sizes.at(key).as_int()); };
    if (sizes.find("num_key_value_heads") != nullptr)
      of_token += 2 * size("num_key_value_heads") * size("head_dim");
  }
  int64_t passes = 0;
  for (const Job& each : job) {
    passes = std::max(passes, each.answer);
    for (int64_t i = 0; i < each.answer; ++i) seen += static_cast<double>(each.prompt + i);
  }
  for (size_t i = 0; i < model.decoder.parameters().size(); ++i)
    weights += static_cast<double>(model.decoder.parameters()[i].value.bytes());
  if (!c.tied_head)
    weights -= static_cast<double>(model.decoder.parameters().at("embedding.weight").value.bytes());
  return seen * of_token * static_cast<double>(size_of(options.dtype)) +
         weights * static_cast<double>(passes);
}

int run(const Options& options) {
  if (options.threads > 0) set_num_threads(static_cast<int>(options.threads));
  const std::vector<Job> job = read_job(options.job);
  int64_t longest = 0, prompts = 0, answers = 0;
  for (const Job& each : job) {
    longest = std::max(longest, each.prompt + each.answer);
    prompts += each.prompt;
    answers += each.answer;
  }
  models::BuildOptions build;
  build.dtype = options.dtype;
  build.facts = detect_hardware(options.device);
  if (options.kernels != "usual" && options.kernels != "batch-invariant")
    fail("--kernels {}: needs usual or batch-invariant", options.kernels);
  if (options.kernels == "batch-invariant")
    build.ops = {.written = rollout::batch_invariant_fields(options.device, options.dtype)};
  const auto model = bench_model(options.model, longest + 1, build);
  std::vector<Result> runs;
  for (int64_t r = 0; r <= options.runs; ++r) {  // the first to warm up
    const Result found = run_once(model->decoder, job, options, static_cast<uint64_t>(r));
    if (r > 0) runs.push_back(found);
  }
  std::sort(runs.begin(), runs.end(), [](const Result& a, const Result& b) { return a.seconds < b.seconds; });
  const Result& median = runs[runs.size() / 2];
  const double speed = static_cast<double>(answers) / median.seconds;
  const double floor =
      static_cast<double>(answers) * measured_copy(build.facts) / bytes_of(*model, job, options);
  std::printf(
      "{\"model\": \"%s\", \"requests\": %zu, \"prompt_tokens\": %lld, \"answer_tokens\": %lld, \"seconds\": "
      "%.3f, "
      "\"tokens_per_second\": %.1f, \"prompts_seconds\": %.3f, \"passes\": %lld, \"captured\": %s, "
      "\"floor_tokens_per_second\": %.1f, \"of_floor\": %.3f}\n",
      options.model.c_str(), job.size(), static_cast<long long>(prompts), static_cast<long long>(answers),
      median.seconds, speed, median.first, static_cast<long long>(median.passes),
      model->decoder.batches_on_device() ? "true" : "false", floor, speed / floor);
  return 0;
}

int main_checked(int argc, char** argv) {
  Options options;
  BenchArguments arguments(argc, argv, options.model);
  while (arguments.next())
    if (!(arguments.take("--device", options.device) || arguments.take("--dtype", options.dtype) ||
          arguments.take("--job", options.job) || arguments.take("--running", options.running) ||
          arguments.take("--chunk", options.chunk) || arguments.take("--page", options.page) ||
          arguments.take("--runs", options.runs) || arguments.take("--threads", options.threads) ||
          arguments.take("--kernels", options.kernels) ||
          arguments.take("--temperature", options.temperature) || arguments.take("--top-p", options.top_p)))
      arguments.refuse();
  return run(options);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  return temper::run_benchmark("temper_bench_rollout", temper::kUsage, temper::main_checked, argc, argv);
}
