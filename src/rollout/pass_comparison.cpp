#include "rollout/pass_comparison.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>

#include "base/clock.h"
#include "base/error.h"
#include "ops/linear/linear.h"
#include "primitives/primitives.h"
#include "rollout/passes/op_trace.h"

namespace temper::rollout {
namespace {

Tensor floats_of(const Tensor& tensor) { return tensor.on({}).to(DType::kF32).contiguous(); }

// NaN is as large as a difference can be.
double difference(double a, double b) {
  const double found = std::abs(a - b);
  return std::isnan(found) ? (std::isnan(a) && std::isnan(b) ? 0 : HUGE_VAL) : found;
}

double largest_difference(std::span<const float> a, std::span<const float> b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, difference(a[i], b[i]));
  return largest;
}

std::span<const float> rows_of(const Tensor& tensor, int64_t first, int64_t count) {
  const auto width = static_cast<size_t>(tensor.dim(1));
  return tensor.values<float>().subspan(static_cast<size_t>(first) * width,
                                        static_cast<size_t>(count) * width);
}

double log_sum_exp(std::span<const float> logits) {
  const double most = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float each : logits) sum += std::exp(each - most);
  return most + std::log(sum);
}

Request request_of(const GivenText& text) {
  Request request;
  request.prompt = text.prompt;
  request.forced = text.answer;
  request.max_new_tokens = std::ssize(text.answer);
  request.adapter = text.adapter;
  return request;
}

}  // namespace

std::vector<GivenText> likeliest_answers(const layers::Decoder& model,
                                         const std::vector<std::vector<int32_t>>& prompts, int64_t new_tokens,
                                         const layers::Adapter* adapter) {
  std::vector<GivenText> texts;
  for (size_t i = 0; i < prompts.size(); ++i) {
    Request request;
    request.prompt = prompts[i];
    request.max_new_tokens = new_tokens;
    request.adapter = adapter;
    EngineOptions options;
    options.max_running = 1;
    options.cache_tokens = std::min(model.config().max_positions, std::ssize(prompts[i]) + new_tokens) + 16;
    Engine engine(model, options);
    engine.add(request);
    while (engine.step()) {
    }
    const Completion answer = engine.take_finished().at(0);
    if (answer.finish == Finish::kFailed) fail("prompt {}: {}", i, answer.error);
    texts.push_back({prompts[i], answer.ids, adapter});
  }
  return texts;
}

std::string PassDifference::describe_first_module() const {
  return first_module.empty() ? "-" : first_module;
}

std::string PassDifference::describe_first_op() const {
  return first_op.empty() ? "-" : fmt::format("{}, {}", first_op, first_op_place);
}

std::string verdict_of(const PassDifference& found, int64_t batch) {
  if (found.none()) return "exactly 0: log-probabilities of rollouts are those of training, bit for bit";
  const std::string first = fmt::format("the first module that differs is {}, the first op {}",
                                        found.describe_first_module(), found.describe_first_op());
  if (found.largest == 0)
    return fmt::format(
        "log-probabilities are the same, bit for bit, but results on the way to them differ with {} answers "
        "at "
        "once; {}",
        batch, first);
  return fmt::format("the largest difference is {:.3g}, with {} answers at once; {}", found.largest, batch,
                     first);
}

// What a pass over the whole text gives.
struct PassComparison::Expected {
  std::vector<Tensor> stages;  // [tokens, hidden] float32 each: the stream, then behind the final norm
  std::vector<OpResult> ops;   // in the order of the pass
  std::unordered_map<std::string, size_t> places;  // of each, by its key
  Tensor logits;                                   // [answer, vocab] float32, of the tokens of the answer
  std::vector<double> sums;                        // log Σ exp of each row of them
};

// Compares each pass as it comes.
class PassComparison::Watcher : public EngineObserver {
 public:
  Watcher(const PassComparison& comparison)
      : comparison_(comparison), trace_(comparison.model_, comparison.adapters_), listens_(trace_) {}

  void begin(int64_t first_id) { first_id_ = first_id; }

  void passed(std::span<const Tokens> parts, const std::vector<Tensor>& stream,
              const Tensor& hidden) override {
    compare_ops(parts);
    stages_.resize(stream.size() + 1);
    for (size_t stage = 0; stage < stages_.size(); ++stage) {
      const Tensor found = floats_of(stage < stream.size() ? stream[stage] : hidden);
      int64_t row = 0;
      for (const Tokens& part : parts) {
        const Tensor& expected = comparison_.expected_[text_of(part)].stages[stage];
        stages_[stage] = std::max(
            stages_[stage],
            largest_difference(rows_of(found, row, part.count), rows_of(expected, part.first, part.count)));
        row += part.count;
      }
    }
  }

  void predicted(std::span<const Tokens> rows, const Tensor& logits) override {
    trace_.take(std::ssize(rows));  // of the head, whose results these are
    const Tensor all = floats_of(logits);
    for (size_t i = 0; i < rows.size(); ++i) {
      const size_t text = text_of(rows[i]);
      const Expected& expected = comparison_.expected_[text];
      const int64_t row = rows[i].first + 1 - std::ssize(comparison_.texts_[text].prompt);
      add(rows_of(all, static_cast<int64_t>(i), 1), rows_of(expected.logits, row, 1),
          expected.sums[static_cast<size_t>(row)], text, rows[i].first + 1);
    }
  }

  PassDifference result() const {
    PassDifference out = out_;
    if (values_ > 0) out.mean = sum_ / static_cast<double>(values_);
    out.not_compared.assign(not_compared_.begin(), not_compared_.end());
    if (!different_ops_.empty()) std::tie(out.first_op, out.first_op_place) = different_ops_.begin()->second;
    size_t stage = 0;
    while (stage < stages_.size() && stages_[stage] == 0) ++stage;
    if (stage == stages_.size() && logits_ == 0) return out;
    out.first_module = comparison_.module_of(stage);
    out.first_largest = stage < stages_.size() ? stages_[stage] : logits_;
    if (stage == stages_.size() && out.first_op.empty()) {
      out.first_op = ops::Linear::kName;
      out.first_op_place = out.first_module;
    }
    if (stage > 0 && stage + 1 < stages_.size()) out.first_layer = static_cast<int64_t>(stage - 1) / 2;
    return out;
  }

 private:
  void compare_ops(std::span<const Tokens> parts) {
    int64_t tokens = 0;
    for (const Tokens& part : parts) tokens += part.count;
    for (const OpResult& found : trace_.take(tokens)) {
      int64_t row = 0;
      for (const Tokens& part : parts) {
        const Expected& all = comparison_.expected_[text_of(part)];
        const auto place = all.places.find(found.key);
        const OpResult* const expected = place == all.places.end() ? nullptr : &all.ops[place->second];
        if (expected == nullptr || !found.compares() || !expected->compares() ||
            found.width != expected->width) {
          not_compared_.insert(found.op);
          break;
        }
        const auto first = expected->rows.begin() + part.first;
        if (!std::equal(first, first + part.count, found.rows.begin() + row))
          different_ops_.try_emplace(place->second, found.op, found.place);
        row += part.count;
      }
    }
  }

  size_t text_of(const Tokens& part) const {
    return static_cast<size_t>(part.id - first_id_) % comparison_.texts_.size();
  }

  void add(std::span<const float> found, std::span<const float> expected, double expected_sum, size_t text,
           int64_t position) {
    const double sum = log_sum_exp(found);
    bool differs = false;
    for (size_t v = 0; v < found.size(); ++v) {
      const double off = difference(found[v] - sum, expected[v] - expected_sum);
      sum_ += off;
      differs = differs || off > 0;
      if (off <= out_.largest) continue;
      out_.largest = off;
      out_.largest_text = text;
      out_.largest_position = position;
    }
    ++out_.tokens;
    out_.different_tokens += differs;
    values_ += std::ssize(found);
    logits_ = std::max(logits_, largest_difference(found, expected));
  }

  const PassComparison& comparison_;
  OpTrace trace_;
  ops::OpListener::Scope listens_;
  std::map<size_t, std::pair<std::string, std::string>> different_ops_;  // op and place, by training's order
  std::set<std::string> not_compared_;
  int64_t first_id_ = 0, values_ = 0;
  std::vector<double> stages_;  // the largest difference of each
  double logits_ = 0, sum_ = 0;
  PassDifference out_;
};

PassComparison::PassComparison(const layers::Decoder& model, std::vector<GivenText> texts)
    : model_(model), texts_(std::move(texts)) {
  invariant(!texts_.empty(), "there are texts to compare");
  for (const GivenText& text : texts_) adapters_.insert(text.adapter);
  for (const GivenText& text : texts_) expected_.push_back(expected_of(text));
}

PassComparison::~PassComparison() = default;

// As training does it: recorded, so that the kernels are those of a step.
PassComparison::Expected PassComparison::expected_of(const GivenText& text) const {
  std::vector<int32_t> ids = text.prompt;
  ids.insert(ids.end(), text.answer.begin(), text.answer.end());
  Tape tape;
  layers::Decoder::Options options;
  std::vector<Tensor> stream;
  options.stream = &stream;
  if (text.adapter != nullptr) options.adapters = {{text.adapter, std::ssize(ids)}};
  OpTrace trace(model_, adapters_);
  const ops::OpListener::Scope listens(trace);
  const Var hidden =
      model_.forward(tape, layers::make_input(ids, std::vector{static_cast<int32_t>(ids.size())}), options);
  Expected out;
  out.ops = trace.take(std::ssize(ids));
  for (size_t i = 0; i < out.ops.size(); ++i) out.places.emplace(out.ops[i].key, i);
  const Var logits = model_.logits(
      tape, primitives::narrow(tape, hidden, 0, std::ssize(text.prompt) - 1, std::ssize(text.answer)),
      text.adapter);
  for (const Tensor& each : stream) out.stages.push_back(floats_of(each));
  out.stages.push_back(floats_of(hidden.value));
  out.logits = floats_of(logits.value);
  for (int64_t row = 0; row < out.logits.dim(0); ++row)
    out.sums.push_back(log_sum_exp(rows_of(out.logits, row, 1)));
  return out;
}

EngineOptions PassComparison::options_of(int64_t batch, bool warm) const {
  EngineOptions options;
  options.max_running = batch;
  options.chunk_tokens = 64;  // so that prompts come in parts
  options.prefix_cache = warm;
  size_t longest = 0;
  for (const GivenText& text : texts_) longest = std::max(longest, text.prompt.size() + text.answer.size());
  const int64_t pages = static_cast<int64_t>(longest) / options.page_tokens + 2;
  options.cache_tokens =
      pages * options.page_tokens * std::max<int64_t>(batch, warm ? std::ssize(texts_) + batch : 0);
  return options;
}

PassDifference PassComparison::compare(int64_t batch, bool warm) const {
  Watcher watcher(*this);
  EngineOptions options = options_of(batch, warm);
  options.observer = &watcher;
  Engine engine(model_, options);
  int64_t found_before = 0;
  for (int round = warm ? 0 : 1; round < 2; ++round) {
    found_before = engine.counts().found;
    for (int64_t i = 0; i < std::max(batch, std::ssize(texts_)); ++i) {
      const int64_t id = engine.add(request_of(texts_[static_cast<size_t>(i) % texts_.size()]));
      if (i == 0) watcher.begin(id);
    }
    while (engine.step()) {
    }
    for (const Completion& each : engine.take_finished())
      if (each.finish == Finish::kFailed) fail("{}", each.error);
  }
  PassDifference out = watcher.result();
  out.found = engine.counts().found - found_before;
  return out;
}

// Without the observer, which copies what is computed.
double PassComparison::seconds_per_pass(int64_t batch) const {
  Engine engine(model_, options_of(batch, false));
  for (int64_t i = 0; i < batch; ++i) engine.add(request_of(texts_[static_cast<size_t>(i) % texts_.size()]));
  std::vector<double> seconds;
  for (bool more = true; more;) {
    const double begun = seconds_now();
    const int64_t sampled = engine.counts().sampled, computed = engine.counts().computed;
    more = engine.step();
    const bool decoded =
        engine.counts().sampled - sampled == batch && engine.counts().computed - computed == batch;
    if (decoded) seconds.push_back(seconds_now() - begun);
  }
  if (seconds.empty()) return 0;
  const auto middle = seconds.begin() + std::ssize(seconds) / 2;
  std::nth_element(seconds.begin(), middle, seconds.end());
  return *middle;
}

std::string PassComparison::module_of(size_t stage) const {
  const size_t layers = model_.config().blocks.size();
  if (stage == 0) return "embedding";
  if (stage <= 2 * layers)
    return fmt::format("layer {}, {}", (stage - 1) / 2, stage % 2 == 1 ? "mixer" : "channel");
  return stage == 2 * layers + 1 ? "final norm" : "head";
}

}  // namespace temper::rollout
