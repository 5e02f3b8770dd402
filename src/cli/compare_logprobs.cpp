#include <algorithm>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "base/numbers.h"
#include "base/text.h"
#include "cli/arguments/adapters.h"
#include "cli/arguments/batch_invariant.h"
#include "cli/arguments/program.h"
#include "cli/arguments/sampling.h"
#include "data/chat/chat_template.h"
#include "data/rows/row.h"
#include "data/sources/source.h"
#include "rollout/pass_comparison.h"
#include "rollout/text_model.h"

namespace temper::cli {
namespace {

struct CompareArguments {
  std::string model, rows;
  int64_t num_rows = 4, new_tokens = 32, threads = 0;
  std::vector<std::string> batches, adapters;
  bool batch_invariant = false;
  std::string dtype, base_dtype, device = "cpu";
};

std::vector<int64_t> batches_of(const CompareArguments& arguments) {
  if (arguments.batches.empty()) return {1, 2, 8, 32};
  std::vector<int64_t> all;
  for (const std::string& text : arguments.batches) {
    const auto value = parse_integer_of<int64_t>(text);
    if (!value || *value < 1 || *value > 4096)
      fail("[--batch] '{}' is not a number of answers; expected 1 to 4096", text);
    all.push_back(*value);
  }
  return all;
}

// A model and the adapters of the command line.
struct Loaded {
  std::unique_ptr<models::Model> model;
  Adapters adapters;
};

Loaded load(const CompareArguments& arguments, bool batch_invariant) {
  SamplingArguments like_batch;
  like_batch.threads = arguments.threads;
  like_batch.dtype = arguments.dtype;
  like_batch.base_dtype = arguments.base_dtype;
  like_batch.device = arguments.device;
  Adapters::check(arguments.model, arguments.adapters);
  auto model = batch_invariant ? load_batch_invariant(arguments.model, like_batch)
                               : load_for_inference(arguments.model, like_batch);
  Adapters adapters(*model, arguments.adapters);
  for (const Adapters::Named& each : adapters.all())
    if (each.awaited) fail("[--adapter] {} comes from another process; name its folder", each.name);
  return {std::move(model), std::move(adapters)};
}

std::vector<std::vector<int32_t>> prompts_of(const CompareArguments& arguments, int64_t vocab_size) {
  const rollout::TextFiles text = rollout::TextFiles::load(arguments.model, vocab_size);
  data::RowOptions any_rows;
  any_rows.goal = data::Goal::kAny;
  any_rows.drop_answer = true;
  const data::RowEncoder encoder(text.tokenizer, data::renderer_of(text.chat), any_rows);
  const data::Source source({arguments.rows});
  std::vector<std::vector<int32_t>> prompts;
  for (int64_t i = 0; i < std::min(source.size(), arguments.num_rows); ++i) {
    const Json row = source.row(i);
    try {
      prompts.push_back(encoder.prompt_of(row));
    } catch (const Error& error) {
      fail("[{}] {}", source.place(i), error.what());
    }
    if (prompts.back().empty()) fail("[{}] the prompt has no tokens", source.place(i));
  }
  if (prompts.empty()) fail("[{}] holds no rows; compare needs at least one prompt", arguments.rows);
  return prompts;
}

struct Result {
  int64_t batch;
  bool warm;
  rollout::PassDifference difference;
  double seconds;  // of a pass; 0: not measured
};

void print_table(const std::vector<Result>& results) {
  fmt::print("{:>5}  {:<16}  {:>13}  {:>9}  {:>9}  {:<13}  {:<18}  {:>9}  {:>11}  {}\n", "batch",
             "prefix cache", "tokens differ", "largest", "mean", "at row, token", "first module", "after it",
             "ms per pass", "first op");
  for (const auto& [batch, warm, found, seconds] : results)
    fmt::print("{:>5}  {:<16}  {:>13}  {:>9.3g}  {:>9.3g}  {:<13}  {:<18}  {:>9.3g}  {:>11}  {}\n", batch,
               warm ? fmt::format("{} tokens found", found.found) : "off",
               fmt::format("{}/{}", found.different_tokens, found.tokens), found.largest, found.mean,
               found.largest > 0 ? fmt::format("{}, {}", found.largest_text, found.largest_position) : "-",
               found.describe_first_module(), found.first_largest,
               seconds > 0 ? fmt::format("{:.2f}", 1e3 * seconds) : "-", found.describe_first_op());
}

// The kernels of one layer that these passes use: one of them adds up differently.
std::string kernels_in(const layers::Decoder& model, int64_t layer, bool adapted) {
  std::set<std::string> all;
  const std::string scope = fmt::format("layers.{}.", layer);
  for (const ops::ModuleKernel& each : model.ops().bindings())
    if (each.module.starts_with(scope) && (adapted || !each.op.starts_with("lora")) && each.op != "dropout")
      all.insert(fmt::format("{} of {} by {}", each.op, each.module.substr(scope.size()), each.provider));
  std::string text;
  for (const std::string& each : all) text += (text.empty() ? "" : ", ") + each;
  return text;
}

void print_verdict(const Loaded& of, const std::vector<Result>& results) {
  const auto worst = std::max_element(results.begin(), results.end(), [](const Result& a, const Result& b) {
    return std::pair{!a.difference.none(), a.difference.largest} <
           std::pair{!b.difference.none(), b.difference.largest};
  });
  const rollout::PassDifference& found = worst->difference;
  if (!found.not_compared.empty())
    fmt::print(
        "not compared one by one, because training has no result of the same shape: {} (what follows them "
        "is)\n",
        join(found.not_compared, ", "));
  fmt::print("{}\n", rollout::verdict_of(found, worst->batch));
  if (found.none()) return;
  const layers::Decoder& model = of.model->decoder;
  const auto& adapters = of.adapters.all();
  const bool adapted = std::any_of(adapters.begin(), adapters.end(),
                                   [](const Adapters::Named& each) { return each.adapter != nullptr; });
  if (found.first_layer >= 0)
    fmt::print("kernels of layer {}: {}\n", found.first_layer, kernels_in(model, found.first_layer, adapted));
  if (!model.decodes_as_prompts())
    fmt::print(
        "this model decodes a token by another formula than training computes a text by "
        "(docs/rollouts.md), so that its last bits differ\n");
}

std::vector<Result> compare(const layers::Decoder& model, const std::vector<rollout::GivenText>& texts,
                            const std::vector<int64_t>& batches) {
  const rollout::PassComparison comparison(model, texts);
  std::vector<Result> results;
  for (const int64_t batch : batches)
    for (const bool warm : {false, true})
      results.push_back(
          {batch, warm, comparison.compare(batch, warm), warm ? 0 : comparison.seconds_per_pass(batch)});
  return results;
}

void print_costs(const std::vector<Result>& invariant, const std::vector<Result>& usual) {
  std::string costs;
  for (size_t i = 0; i < usual.size(); ++i)
    if (usual[i].seconds > 0)
      costs += fmt::format("{}{:.2f} times with {} at once", costs.empty() ? "" : ", ",
                           invariant[i].seconds / usual[i].seconds, usual[i].batch);
  if (!costs.empty()) fmt::print("\ntime of a pass with --batch-invariant, to one without: {}\n", costs);
}

int run(const CompareArguments& arguments) {
  for (const auto& [name, value] : {std::pair{"--rows", arguments.num_rows}, {"-n", arguments.new_tokens}})
    if (value < 1) fail("[{}] {} is out of range; expected 1 or more", name, value);
  const std::vector<int64_t> batches = batches_of(arguments);
  std::optional<Loaded> loaded = load(arguments, arguments.batch_invariant);
  const int64_t vocab_size = loaded->model->decoder.config().vocab_size;
  const auto prompts = prompts_of(arguments, vocab_size);
  std::vector<rollout::GivenText> texts;
  for (const Adapters::Named& each : loaded->adapters.all())
    for (rollout::GivenText& text : rollout::likeliest_answers(loaded->model->decoder, prompts,
                                                               arguments.new_tokens, each.adapter.get()))
      texts.push_back(std::move(text));
  size_t tokens = 0;
  for (const rollout::GivenText& text : texts) tokens += text.answer.size();
  fmt::print("{} texts, {} tokens of answers, each over a vocabulary of {}\n", texts.size(), tokens,
             vocab_size);
  const std::vector<Result> results = compare(loaded->model->decoder, texts, batches);
  fmt::print("\n{} kernels\n", arguments.batch_invariant ? "batch-invariant" : "usual");
  print_table(results);
  print_verdict(*loaded, results);
  if (!arguments.batch_invariant) return 0;
  loaded.reset();
  loaded = load(arguments, false);
  for (size_t i = 0; i < texts.size(); ++i)
    texts[i].adapter = loaded->adapters.all()[i / prompts.size()].adapter.get();
  const std::vector<Result> usual = compare(loaded->model->decoder, texts, batches);
  fmt::print("\nusual kernels\n");
  print_table(usual);
  print_verdict(*loaded, usual);
  print_costs(results, usual);
  return 0;
}

}  // namespace

void add_compare_logprobs(Program& program) {
  program.add(
      "compare-logprobs", "Compare log-probabilities of rollouts and of training.", [](Options& options) {
        auto arguments = std::make_shared<CompareArguments>();
        options.positional("model", arguments->model, "The model's folder, in Hugging Face format.");
        options.positional("prompts", arguments->rows, "Prompts or conversations (docs/rollouts.md).");
        options.option("--adapter", arguments->adapters, "FOLDER, NAME=FOLDER or none; may be repeated.");
        options.option("--rows", arguments->num_rows, "Compare the first N rows. Omitted: 4.");
        options.option("-n,--max-new-tokens", arguments->new_tokens,
                       "Tokens of each answer (greedy). Omitted: 32.");
        options.option("--batch", arguments->batches, "Answers at once; repeatable. Omitted: 1, 2, 8, 32.");
        options.flag("--batch-invariant", arguments->batch_invariant,
                     "Kernels whose sums do not depend on the batch.");
        options.option("--threads", arguments->threads, "Compute with N threads. Omitted: one per core.");
        options.option("--device", arguments->device, "cpu (the default), cuda, or cuda:N for another GPU.");
        options.option("--dtype", arguments->dtype, "float32 or bfloat16. Omitted: the model's own.");
        options.option("--base-dtype", arguments->base_dtype,
                       "Keeps linears in float8_e4m3fn, nf4 or nf4_double.");
        return [arguments] { return run(*arguments); };
      });
}

}  // namespace temper::cli
