#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/random.h"
#include "base/signals/stop_signals.h"
#include "checkpoints/weights_sample.h"
#include "cli/arguments/adapters.h"
#include "cli/arguments/batch_invariant.h"
#include "cli/arguments/new_weights.h"
#include "cli/arguments/program.h"
#include "cli/arguments/quantize_of_run.h"
#include "cli/arguments/sampling.h"
#include "data/chat/chat_template.h"
#include "data/chat/losses.h"
#include "data/rows/row.h"
#include "data/sources/source.h"
#include "rollout/engine.h"
#include "rollout/requests/answer_file.h"
#include "rollout/requests/finish.h"
#include "rollout/text_model.h"

namespace temper::cli {
namespace {

struct BatchArguments {
  std::string model, rows, out, weights_from, weights_mode, quantize;
  std::vector<std::string> adapters;
  int64_t samples = 1, batch = 32;
  bool batch_invariant = false;
  SamplingArguments sampling;
};

std::unique_ptr<models::Model> load(const BatchArguments& arguments) {
  Adapters::check(arguments.model, arguments.adapters);
  quantizers::QuantizeOptions quantize;
  if (!arguments.quantize.empty()) quantize = quantize_of_run(arguments.quantize);
  auto model = arguments.batch_invariant
                   ? load_batch_invariant(arguments.model, arguments.sampling, quantize)
                   : load_for_inference(arguments.model, arguments.sampling, {}, quantize);
  if (quantize.any() && exchange::rounding_of(&model->decoder.quantizers()).empty())
    fail("[--quantize] {} quantizes weights alone, which come rounded; leave it out", arguments.quantize);
  return model;
}

// A hash of how values that pass are rounded, once scales come; empty: they are not.
std::string rounding_of(const models::Model& model) {
  const exchange::Rounding rounding = exchange::rounding_of(&model.decoder.quantizers());
  if (rounding.empty()) return "";
  const std::string text = exchange::to_json(rounding).dump();
  Hasher hasher;
  hasher.update(text.data(), text.size());
  return hasher.digest();
}

data::RowOptions any_rows() {
  data::RowOptions options;
  options.goal = data::Goal::kAny;
  options.drop_answer = true;
  return options;
}

// One line now and then: "answers 120/1000  31 running  2310 tokens/s  2m 3s left".
class Lines {
 public:
  explicit Lines(int64_t total) : total_(total) {}
  void show(int64_t done, int64_t running, int64_t tokens) {
    const double now = seconds_now(), passed = now - begun_;
    if (now - shown_ < 10) return;
    shown_ = now;
    const double left =
        done > 0 ? passed / static_cast<double>(done) * static_cast<double>(total_ - done) : 0;
    log_info(fmt::format("answers {}/{}  {} running  {:.0f} tokens/s{}", done, total_, running,
                         static_cast<double>(tokens) / passed,
                         done > 0 ? fmt::format("  about {:.0f} s left", left) : ""));
  }
  double passed() const { return seconds_now() - begun_; }

 private:
  int64_t total_;
  double begun_ = seconds_now(), shown_ = begun_;
};

// What an answer depends on, as a key of the file that is continued.
class AnswerKeys {
 public:
  AnswerKeys(const BatchArguments& arguments, const models::Model& model, const rollout::Request& options)
      : arguments_(arguments),
        options_(options),
        weights_(checkpoints::sample_of_weights(arguments.model)),
        rounding_(rounding_of(model)) {}

  std::string key_of(const Adapters::Named& adapter, const std::vector<int32_t>& prompt) const {
    const ops::SamplingOptions& s = options_.sampling;
    const std::vector<std::string>& stops = arguments_.sampling.stops;
    Json::Object asked{{"weights", weights_},
                       {"adapter", adapter.name},
                       {"temperature", s.temperature},
                       {"top_k", s.top_k},
                       {"top_p", s.top_p},
                       {"repetition_penalty", s.repetition_penalty},
                       {"seed", static_cast<int64_t>(s.seed)},
                       {"max_new_tokens", options_.max_new_tokens},
                       {"stop", Json::Array(stops.begin(), stops.end())}};
    if (!rounding_.empty()) asked.emplace_back("quantize", rounding_);
    if (s.min_p > 0) asked.emplace_back("min_p", s.min_p);  // files of before have keys without it
    if (adapter.adapter != nullptr) asked.emplace_back("adapter_weights", adapter.weights);
    const std::string settings = Json(asked).dump();
    Hasher hasher;
    hasher.update(settings.data(), settings.size());
    hasher.update(prompt.data(), prompt.size() * sizeof(int32_t));
    return hasher.digest();
  }

 private:
  const BatchArguments& arguments_;
  const rollout::Request& options_;
  const std::string weights_;   // a hash of them
  const std::string rounding_;  // what --quantize says, in short; empty: nothing
};

class Batch {
 public:
  explicit Batch(const BatchArguments& arguments)
      : arguments_(arguments),
        model_(load(arguments)),
        adapters_(*model_, arguments.adapters),
        text_(rollout::TextFiles::load(arguments.model, model_->decoder.config().vocab_size)),
        options_(arguments.sampling.apply(text_.generation)),
        keys_(arguments, *model_, options_),
        source_({arguments.rows}),
        encoder_(text_.tokenizer, data::renderer_of(text_.chat), any_rows()),
        file_(arguments.out) {}

  int run() {
    const int64_t longest = scan();
    const int64_t most = std::min(model_->decoder.config().max_positions, longest + options_.max_new_tokens);
    rollout::EngineOptions engine;
    engine.max_running = std::max<int64_t>(1, std::min(arguments_.batch, to_do_));
    engine.cache_tokens = engine.max_running * (most / engine.page_tokens + 1) * engine.page_tokens;
    const StopSignals signals;
    const bool whole = to_do_ == 0 || generate(engine, signals);
    file_.close();
    if (!whole) {
      log_info(fmt::format("stopped; {} has {} answers, and the same command continues", arguments_.out,
                           file_.size()));
      return static_cast<int>(ErrorKind::kInterrupted);
    }
    if (failed_ > 0)
      log_warning(fmt::format(
          "{} missing{}", failed_ == 1 ? "1 answer is" : fmt::format("{} answers are", failed_),
          failed_ > kMostReported ? fmt::format("; the reasons of the first {} are above", kMostReported)
                                  : " (see above)"));
    return failed_ > 0 ? static_cast<int>(ErrorKind::kInput) : 0;
  }

 private:
  static constexpr int64_t kMostReported = 10;

  // A row as requests read it.
  struct Prompt {
    data::Asked asked;
    const Adapters::Named* adapter;
    std::string key;
  };

  Prompt prompt_of(const Json& row) const {
    const Json* name = row.is_object() ? row.find("adapter") : nullptr;
    if (name != nullptr && !name->is_string()) fail("adapter must be a string, found {}", name->kind_name());
    const Adapters::Named& adapter =
        name != nullptr ? adapters_.find(name->as_string()) : adapters_.all().front();
    Prompt prompt{encoder_.asked_of(row), &adapter, {}};
    const std::vector<int32_t>& ids = prompt.asked.ids;
    if (ids.empty()) fail("the prompt has no tokens");
    if (std::ssize(ids) >= model_->decoder.config().max_positions)
      fail("the prompt has {} tokens; the model's context is {}", ids.size(),
           model_->decoder.config().max_positions);
    prompt.key = keys_.key_of(adapter, ids);
    return prompt;
  }

  // Prints the first ones; the others are only counted, and their number is printed at the end.
  void report(int64_t row, const std::string& why) {
    if (++failed_ > kMostReported) return;
    const std::string place = source_.place(row);
    log_warning(why.starts_with(fmt::format("[{}:", place)) ? why : fmt::format("[{}] {}", place, why));
  }

  // Finds what is left to do, and the longest prompt of it. Rows that cannot be read are named.
  int64_t scan() {
    int64_t longest = 0, lossy = 0;
    for (int64_t i = 0; i < source_.size(); ++i) try {
        const Prompt prompt = prompt_of(source_.row(i));
        const auto place = [&] { return source_.place(i); };
        data::warn_of_losses(place, prompt.asked.lost);
        data::log_notes(place, prompt.asked.notes);
        lossy += !prompt.asked.lost.empty();
        for (int64_t sample = 0; sample < arguments_.samples; ++sample)
          if (!file_.has(i, sample, prompt.key)) {
            ++to_do_;
            longest = std::max<int64_t>(longest, std::ssize(prompt.asked.ids));
          }
      } catch (const Error& error) {
        if (std::string_view(error.what()).find(arguments_.out) != std::string_view::npos) throw;
        bad_rows_.insert(i);
        report(i, error.what());
      }
    if (lossy > 1) log_warning(fmt::format("{} rows have prompts of which such a warning holds", lossy));
    const int64_t all = (source_.size() - std::ssize(bad_rows_)) * arguments_.samples;
    if (to_do_ < all) log_info(fmt::format("{} of {} answers are in {}", all - to_do_, all, arguments_.out));
    return longest;
  }

  // The answers to a row that are missing; samples of a row follow one another, so that they share its
  // prompt.
  void add_row(rollout::Engine& engine, int64_t row) {
    if (bad_rows_.contains(row)) return;
    const Prompt prompt = prompt_of(source_.row(row));
    for (int64_t sample = 0; sample < arguments_.samples; ++sample) {
      if (file_.has(row, sample, prompt.key)) continue;
      rollout::Request request = prompt.adapter->apply(options_);
      request.prompt = prompt.asked.ids;
      const auto words = Random(options_.sampling.seed, RandomPurpose::kSampling, static_cast<uint64_t>(row))
                             .words(static_cast<uint64_t>(sample));
      request.sampling.seed = uint64_t{words[0]} << 32 | words[1];
      asked_[engine.add(std::move(request))] = {row, sample, prompt.key};
    }
  }

  void write(const rollout::Completion& answer) {
    const auto asked = asked_.extract(answer.id).mapped();
    if (answer.finish == rollout::Finish::kFailed) return report(asked.row, answer.error);
    Json::Array tokens, log_probs, kept;
    for (const int32_t id : answer.ids) tokens.emplace_back(int64_t{id});
    for (const float each : answer.columns.rollout_log_probs) log_probs.emplace_back(double{each});
    for (const float each : answer.columns.kept) kept.emplace_back(double{each});
    Json::Object line{{"text", answer.text},
                      {"finish", rollout::name_of(answer.finish)},
                      {"ids", tokens},
                      {"log_probs", log_probs}};
    if (options_.sampling.truncates()) line.emplace_back("kept", kept);
    if (new_weights_) line.emplace_back("versions", new_weights_->numbers_of(answer.versions));
    if (new_weights_ && !answer.adapter_versions.empty())
      line.emplace_back("adapter_versions", new_weights_->numbers_of(answer.adapter_versions));
    line.emplace_back("input", source_.row(asked.row));
    file_.write(asked.row, asked.sample, asked.key, line);
  }

  // False where a signal ended it.
  bool generate(const rollout::EngineOptions& options, const StopSignals& signals) {
    if (!arguments_.weights_from.empty())
      new_weights_.emplace(arguments_.weights_from, model_->decoder, adapters_,
                           loading_of(arguments_.weights_mode, arguments_.sampling.device));
    rollout::Engine engine(model_->decoder, options, &text_.tokenizer);
    Lines lines(to_do_);
    int64_t next = 0, done = 0;
    for (bool more = true; more;) {
      while (next < source_.size() && engine.waiting() < options.max_running) add_row(engine, next++);
      if (new_weights_ && !new_weights_->take([&] { return signals.requested(); })) return false;
      more = engine.step() || next < source_.size();
      for (const rollout::Completion& answer : engine.take_finished()) {
        write(answer);
        ++done;
      }
      lines.show(done, engine.running(), engine.counts().sampled);
      if (signals.requested()) return false;
    }
    const rollout::Engine::Counts& counts = engine.counts();
    log_info(fmt::format(
        "{} answers, {} tokens in {:.1f}s: {:.0f} tokens/s{}{}{}", done, counts.sampled, lines.passed(),
        static_cast<double>(counts.sampled) / lines.passed(),
        counts.found > 0 ? fmt::format(", {} prompt tokens from the prefix cache", counts.found) : "",
        counts.preemptions > 0 ? fmt::format(", {} preemptions", counts.preemptions) : "",
        counts.recomputations > 0
            ? fmt::format(", {} answers computed again by new weights", counts.recomputations)
            : ""));
    return true;
  }

  struct Asked {
    int64_t row, sample;
    std::string key;
  };

  const BatchArguments& arguments_;
  std::unique_ptr<models::Model> model_;
  Adapters adapters_;
  rollout::TextFiles text_;
  rollout::Request options_;  // of all, without their prompts
  AnswerKeys keys_;
  data::Source source_;
  data::RowEncoder encoder_;
  rollout::AnswerFile file_;
  std::optional<NewWeights> new_weights_;
  std::set<int64_t> bad_rows_;
  std::map<int64_t, Asked> asked_;  // by the engine's number
  int64_t to_do_ = 0, failed_ = 0;
};

void check_weights_from(const BatchArguments& arguments) {
  if (!arguments.weights_from.empty()) {
    loading_of(arguments.weights_mode, arguments.sampling.device);  // refuses what is no mode
    if (!arguments.quantize.empty() && !arguments.sampling.base_dtype.empty())
      fail(
          "[--quantize] weights with scales are not taken by a model in --base-dtype; leave one of both out");
    return;
  }
  if (!arguments.weights_mode.empty()) fail("[--weights-mode] is written without --weights-from");
  if (!arguments.quantize.empty())
    fail("[--quantize] is written without --weights-from, by which the scales come");
  for (const std::string& adapter : arguments.adapters)
    if (adapter.ends_with(std::string("=") + Adapters::kAwaited))
      fail("[--adapter] {} comes from another process; name the socket with --weights-from", adapter);
}

int batch(const BatchArguments& arguments) {
  if (arguments.out.empty()) fail("[batch] --out is missing; name the file for the answers");
  if (arguments.samples < 1) fail("[--samples] {} is out of range; expected 1 or more", arguments.samples);
  if (arguments.batch < 1) fail("[--batch] {} is out of range; expected 1 or more", arguments.batch);
  check_weights_from(arguments);
  return Batch(arguments).run();
}

}  // namespace

void add_batch(Program& program) {
  program.add("batch", "Answer all prompts of a file.", [](Options& options) {
    auto arguments = std::make_shared<BatchArguments>();
    options.positional("model", arguments->model, "The model's folder, in Hugging Face format.");
    options.positional("rows", arguments->rows, "Prompts or conversations (docs/rollouts.md).");
    options.option("--out", arguments->out, "The file for the answers; it is continued.");
    options.option("--samples", arguments->samples, "Answers to each row. Omitted: 1.");
    options.option("--adapter", arguments->adapters, Adapters::kHelp);
    options.option("--batch", arguments->batch, "Answers at once, at most. Omitted: 32.");
    options.flag("--batch-invariant", arguments->batch_invariant,
                 "Answers do not depend on --batch, to the last bit.");
    options.option("--weights-from", arguments->weights_from, "A socket: new weights, while it answers.");
    options.option("--weights-mode", arguments->weights_mode, "staged or direct (docs/weight_exchange.md).");
    options.option("--quantize", arguments->quantize, "RUN.yaml, of a run that sends quantized weights.");
    arguments->sampling.declare(options);
    return [arguments] { return batch(*arguments); };
  });
}

}  // namespace temper::cli
