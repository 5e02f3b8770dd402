#include "rollout/engine.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "ops/token_log_probs/token_log_probs.h"
#include "primitives/primitives.h"
#include "rollout/sequence.h"

namespace temper::rollout {
namespace {

EngineOptions checked(const EngineOptions& options) {
  for (const auto& [name, value, least] : {std::tuple{"page_tokens", options.page_tokens, int64_t{1}},
                                           {"cache_tokens", options.cache_tokens, options.page_tokens},
                                           {"max_running", options.max_running, int64_t{1}},
                                           {"chunk_tokens", options.chunk_tokens, int64_t{64}}})
    if (value < least) fail("[engine] {} is {}, needs {} or more", name, value, least);
  return options;
}

int64_t pages_of(const EngineOptions& options) { return options.cache_tokens / options.page_tokens; }

// Slots of running requests, and as many for states that other requests may continue. A spare page is for
// rows of captured passes without a sequence.
layers::PageSizes sizes_of(const EngineOptions& options, bool captures) {
  return {pages_of(options) + (captures ? 1 : 0), options.page_tokens,
          2 * options.max_running + (captures ? 1 : 0)};
}

// Nobody answers while what answers are made of sleeps.
void require_all_awake(Device device) {
  for (const MemoryTag tag : {MemoryTag::kWeights, MemoryTag::kKvCache, MemoryTag::kGraphs})
    require_awake(device, tag, "a request");
}

}  // namespace

Engine::Engine(const layers::Decoder& model, const EngineOptions& options,
               const tokenizers::Tokenizer* tokenizer)
    : model_(model),
      options_(checked(options)),
      tokenizer_(tokenizer),
      captures_(model.device().type != DeviceType::kCpu && model.batches_on_device()),
      states_(model.make_pages(sizes_of(options_, captures_))),
      has_slots_(states_.has_slots()),
      decodes_as_prompts_(model.decodes_as_prompts() && !has_slots_),
      pool_(pages_of(options_)),
      sample_(model.ops().at<ops::Sample>("head")),
      log_probs_(model.ops().at<ops::TokenLogProbs>("head")),
      model_version_(model.parameters().version()) {
  free_all_slots();
}

Engine::~Engine() = default;

void Engine::free_all_slots() {
  free_slots_.clear();
  for (int64_t slot = options_.max_running; slot > 0;) free_slots_.push_back(static_cast<int32_t>(--slot));
}

void Engine::sleep() {
  invariant(waiting_.empty() && running_.empty(), "an engine that has requests does not sleep");
  if (turn_) return;
  flight_.reset();  // of nobody
  pool_.forget();
  free_all_slots();
  // NCCL gives other ranks the memory behind the addresses that captured collectives have: there it stays.
  if (model_.ranks().tensor != nullptr) forget_passes();
  turn_.emplace(
      model_.device(), "an update",
      std::vector<Sleeper>{{MemoryTag::kKvCache, PauseMode::kDrop}, {MemoryTag::kGraphs, PauseMode::kDrop}});
}

void Engine::wake() {
  if (!turn_) return;
  turn_->wake();
  turn_.reset();
}

int64_t Engine::add(Request request) {
  require_all_awake(model_.parameters().device());
  const int64_t length = std::ssize(request.prompt), context = model_.config().max_positions;
  if (length == 0) fail("[generate] the prompt has no tokens; give some text, or use a chat template");
  if (length >= context)
    fail("[generate] the prompt has {} tokens; the model's context is {}", length, context);
  for (const std::vector<int32_t>* ids : {&request.prompt, &request.forced})
    for (const int32_t id : *ids)
      if (id < 0 || id >= model_.config().vocab_size)
        fail("token id {} is outside the vocabulary [0, {})", id, model_.config().vocab_size);
  if (request.max_new_tokens < 1)
    fail("[generate] max_new_tokens is {}, needs 1 or more", request.max_new_tokens);
  if (!(request.log_prob_temperature > 0))
    fail("[generate] log_prob_temperature is {}, needs more than 0", request.log_prob_temperature);
  if (!request.stop_strings.empty() && tokenizer_ == nullptr)
    fail("[generate] stop strings need the engine to have a tokenizer");
  const int64_t most = std::min(context, length + request.max_new_tokens),
                room = pool_.size() * options_.page_tokens;
  if (most > room)
    fail(
        "[generate] a prompt of {} tokens and up to {} new ones need {} tokens of cache, it has room for {}; "
        "make the cache larger (cache_tokens), or ask for fewer new tokens",
        length, request.max_new_tokens, most, room);
  auto sequence = std::make_unique<Sequence>();
  sequence->tokens = request.prompt;
  if (tokenizer_ != nullptr) {
    sequence->text.emplace(*tokenizer_, request.stop_strings, request.skip_special_tokens);
    for (const int32_t id : stop_tokens(request.stop_strings, *tokenizer_)) request.stop_ids.push_back(id);
  }
  sequence->request = std::move(request);
  sequence->result.id = next_id_++;
  waiting_.push_back(std::move(sequence));
  return waiting_.back()->result.id;
}

bool Engine::step() {
  require_all_awake(model_.parameters().device());
  if (flight_) {
    land();
    return true;
  }
  follow_weights();
  admit();
  const std::vector<Part> parts = plan();
  if (parts.empty()) {
    invariant(waiting_.empty() && running_.empty(), "the engine has requests and nothing to compute");
    return false;
  }
  compute(parts);
  return true;
}

std::vector<Completion> Engine::take_finished() { return std::exchange(finished_, {}); }

layers::BatchInput Engine::input_of(const std::vector<Part>& parts) const {
  layers::BatchInput input;
  std::vector<int32_t> ids, starts{0}, held, tables, slots;
  size_t width = 1;
  for (const Part& part : parts) width = std::max(width, part.sequence->pages.size());
  bool adapted = false, experts = false;
  for (const auto& [sequence, tokens, decodes] : parts) {
    const auto first = sequence->tokens.begin() + sequence->computed;
    ids.insert(ids.end(), first, first + tokens);
    starts.push_back(starts.back() + static_cast<int32_t>(tokens));
    held.push_back(static_cast<int32_t>(sequence->computed));
    tables.insert(tables.end(), sequence->pages.begin(), sequence->pages.end());
    tables.resize(held.size() * width, PagePool::kNone);
    slots.push_back(sequence->slot);
    input.batch.decoding += decodes;
    adapted = adapted || sequence->request.adapter != nullptr;
    experts = experts || sequence->request.record_experts;
    if (!input.adapters.empty() && input.adapters.back().adapter == sequence->request.adapter)
      input.adapters.back().rows += tokens;
    else
      input.adapters.push_back({sequence->request.adapter, tokens});
  }
  if (!adapted) input.adapters.clear();
  if (experts) input.routers = std::make_shared<layers::RouterTrace>();
  input.ids = Tensor::from(ids);
  input.batch.slots = Tensor::from(slots);
  input.batch.sequences = {Tensor::from(starts), Tensor::from(held),
                           Tensor::from(tables).reshape({std::ssize(held), static_cast<int64_t>(width)})};
  return input;
}

void Engine::compute(const std::vector<Part>& parts) {
  if (is_plain_decoding(parts)) return take_off(parts);
  Tape tape(false);
  layers::BatchInput input = input_of(parts);
  std::vector<Tensor> stream;
  if (options_.observer != nullptr) input.stream = &stream;
  const Tensor hidden = model_.forward(tape, input, states_).value;
  counts_.computed += input.ids.numel();
  if (input.routers != nullptr) record_experts(parts, *input.routers);
  if (options_.observer != nullptr) {
    std::vector<EngineObserver::Tokens> tokens;
    for (const Part& part : parts)
      tokens.push_back({part.sequence->result.id, part.sequence->computed, part.tokens});
    options_.observer->passed(tokens, stream, hidden);
  }
  for (const Part& part : parts) {
    part.sequence->computed += part.tokens;
    publish(*part.sequence);
  }
  sample(parts, hidden);
}

void Engine::record_experts(const std::vector<Part>& parts, const layers::RouterTrace& trace) const {
  std::vector<Tensor> ids;
  for (const layers::RouterTrace::Router& router : trace.routers) ids.push_back(router.ids.on({}));
  int64_t row = 0;
  for (const Part& part : parts) {
    Sequence& sequence = *part.sequence;
    std::vector<int32_t>& experts = sequence.result.experts;
    if (sequence.request.record_experts && sequence.computed == 0) experts.clear();  // computed again
    for (int64_t i = 0; i < part.tokens; ++i, ++row)
      for (const Tensor& router : ids) {
        const int32_t* const chosen = router.data<int32_t>() + row * router.dim(1);
        if (sequence.request.record_experts) experts.insert(experts.end(), chosen, chosen + router.dim(1));
      }
  }
}

// The tokens of each sequence, [sequences, vocab] uint8 on the model's device; where no penalty asks for
// them, anything.
Tensor Engine::seen_by(const std::vector<Sequence*>& sequences) const {
  const int64_t vocab = model_.config().vocab_size;
  const auto empty = [&](Device device) {
    return Tensor::empty({std::ssize(sequences), vocab}, DType::kU8, MemoryTag::kData, device);
  };
  const auto is_penalised = [](const Sequence& each) {
    return each.request.sampling.repetition_penalty != 1;
  };
  if (std::none_of(sequences.begin(), sequences.end(),
                   [&](const Sequence* each) { return is_penalised(*each); }))
    return empty(model_.device());
  const Tensor seen = empty({});
  for (size_t i = 0; i < sequences.size(); ++i) {
    if (!is_penalised(*sequences[i])) continue;  // not read
    uint8_t* const marks = seen.data<uint8_t>() + static_cast<int64_t>(i) * vocab;
    std::memset(marks, 0, static_cast<size_t>(vocab));
    for (const int32_t id : sequences[i]->tokens) marks[id] = 1;
  }
  return seen.on(model_.device(), MemoryTag::kData);
}

// The next token of each sequence whose tokens are all computed.
void Engine::sample(const std::vector<Part>& parts, const Tensor& hidden) {
  std::vector<Sequence*> ready;
  std::vector<int32_t> rows, positions;
  std::vector<layers::AdapterRows> adapters;
  std::vector<ops::SamplingOptions> options;
  int32_t end = 0;
  bool adapted = false;
  for (const Part& part : parts) {
    end += static_cast<int32_t>(part.tokens);
    if (part.sequence->left() > 0) continue;
    ready.push_back(part.sequence);
    rows.push_back(end - 1);
    positions.push_back(static_cast<int32_t>(part.sequence->length()) - 1);
    options.push_back(part.sequence->request.sampling);
    adapters.push_back({part.sequence->request.adapter, 1});
    adapted = adapted || part.sequence->request.adapter != nullptr;
  }
  if (ready.empty()) return;
  if (!adapted) adapters.clear();
  Tape tape(false);
  const Device device = model_.device();
  const auto count = static_cast<int64_t>(ready.size());
  const primitives::ChosenRows last(Tensor::from(rows), hidden.dim(0), false);
  const Var logits =
      model_.logits(tape, primitives::gather_rows(tape, tape.constant(hidden), last), adapters);
  ops::Sample op;
  op.logits = logits.value.contiguous();
  op.options = Tensor::empty({count, sizeof(ops::SamplingOptions)}, DType::kU8, MemoryTag::kData, device);
  op.options.copy_from_host(options.data(), op.options.bytes());
  op.seen = seen_by(ready);
  op.positions = Tensor::from(positions).on(device, MemoryTag::kData);
  op.ids = Tensor::empty({count}, DType::kI32, MemoryTag::kData, device);
  op.chosen = Tensor::empty({count}, DType::kI32, MemoryTag::kData, device);
  op.kept = Tensor::empty({count}, DType::kF32, MemoryTag::kData, device);
  ops::choose_tokens(sample_, op);
  const std::vector<float> log_probs = log_probs_of(tape, logits, forced(op.ids, ready), ready);
  const Tensor chosen = forced(op.chosen, ready).on({}), kept = op.kept.on({});
  if (options_.observer != nullptr) {
    std::vector<EngineObserver::Tokens> tokens;
    for (const Sequence* each : ready) tokens.push_back({each->result.id, each->length() - 1, 1});
    options_.observer->predicted(tokens, logits.value);
  }
  for (size_t i = 0; i < ready.size(); ++i)
    take(*ready[i], {chosen.values<int32_t>()[i], log_probs[i], kept.values<float>()[i]});
}

// The same with the tokens that requests force, where there was one to choose.
Tensor Engine::forced(const Tensor& ids, const std::vector<Sequence*>& sequences) {
  const auto next = [](const Sequence& each) { return each.result.ids.size(); };
  if (std::none_of(sequences.begin(), sequences.end(),
                   [&](const Sequence* each) { return next(*each) < each->request.forced.size(); }))
    return ids;
  std::vector<int32_t> all(sequences.size());
  const Tensor host = ids.on({});
  for (size_t i = 0; i < sequences.size(); ++i) {
    const std::vector<int32_t>& answer = sequences[i]->request.forced;
    all[i] = host.values<int32_t>()[i];
    if (next(*sequences[i]) < answer.size() && all[i] != ops::kNoToken) all[i] = answer[next(*sequences[i])];
  }
  return Tensor::from(all).on(ids.device(), MemoryTag::kData);
}

std::vector<float> Engine::log_probs_of(Tape& tape, const Var& logits, const Tensor& ids,
                                        const std::vector<Sequence*>& sequences) const {
  std::vector<float> all;
  for (size_t first = 0; first < sequences.size();) {  // of one temperature at once
    const double temperature = sequences[first]->request.log_prob_temperature;
    size_t end = first + 1;
    while (end < sequences.size() && sequences[end]->request.log_prob_temperature == temperature) ++end;
    const auto from = static_cast<int64_t>(first), count = static_cast<int64_t>(end - first);
    const Var some = primitives::narrow(tape, logits, 0, from, count);
    const Tensor own = ops::token_log_probs(tape, log_probs_, some, ids.narrow(0, from, count), temperature)
                           .log_probs.value.on({});
    const auto values = own.values<float>();
    all.insert(all.end(), values.begin(), values.end());
    first = end;
  }
  return all;
}

bool Engine::take(Sequence& sequence, const Token& token) {
  Completion& result = sequence.result;
  const Request& request = sequence.request;
  const int32_t id = token.id;
  if (id == ops::kNoToken) {
    result.error = fmt::format(
        "[generate] the model's logits for new token {} (position {} of the text) have no largest finite "
        "value: NaN or infinity. Check the weights and adapters (did their training diverge?), or use "
        "--dtype float32",
        result.ids.size() + 1, sequence.length());
    return finish(sequence, Finish::kFailed), false;
  }
  sequence.tokens.push_back(id);
  result.ids.push_back(id);
  result.log_probs.push_back(token.log_prob);
  result.kept.push_back(token.kept);
  result.versions.push_back(model_version_);
  if (request.adapter != nullptr) result.adapter_versions.push_back(sequence.adapter_version);
  ++counts_.sampled;
  if (std::find(request.stop_ids.begin(), request.stop_ids.end(), id) != request.stop_ids.end())
    return finish(sequence, Finish::kStopToken), false;
  if (sequence.text) {
    sequence.text->push(id);
    if (sequence.text->stopped()) return finish(sequence, Finish::kStopString), false;
  }
  if (sequence.length() >= model_.config().max_positions) return finish(sequence, Finish::kContext), false;
  if (std::ssize(result.ids) >= request.max_new_tokens) return finish(sequence, Finish::kLength), false;
  return true;
}

void Engine::finish(Sequence& sequence, Finish reason) {
  sequence.result.finish = reason;
  if (sequence.text) {
    sequence.text->finish();
    sequence.result.text = sequence.text->text();
  }
  finished_.push_back(std::move(sequence.result));
  free_slots_.push_back(sequence.slot);
  release(sequence);
  running_.erase(std::find_if(running_.begin(), running_.end(),
                              [&](const auto& each) { return each.get() == &sequence; }));
}

}  // namespace temper::rollout
