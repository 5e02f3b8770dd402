#include "rollout/engine.h"

#include <algorithm>
#include <tuple>

#include "base/error.h"
#include "rollout/requests/request_limits.h"

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

// Whether passes in which all sequences get one token are captured.
bool captures(const layers::Decoder& model) {
  return model.device().type != DeviceType::kCpu && model.batches_on_device();
}

// Where passes are captured, a spare page and a spare slot are for rows without a sequence.
SequenceCache make_cache(const layers::Decoder& model, const EngineOptions& options) {
  const int64_t pages = pages_of(checked(options)), spare = captures(model) ? 1 : 0;
  layers::PagedStates states = model.make_pages(
      {pages + spare, options.page_tokens, StateSlots::count_for(options.max_running) + spare});
  const bool has_slots = states.has_slots();
  const PromptParts parts{options.page_tokens, options.prefix_cache, has_slots,
                          model.decodes_as_prompts() && !has_slots, options.continues_answers};
  return {std::move(states), parts, pages, options.max_running};
}

// No engine of the device answers while the memory that answers need sleeps.
void require_all_awake(Device device) {
  for (const MemoryTag tag : {MemoryTag::kWeights, MemoryTag::kKvCache, MemoryTag::kGraphs})
    require_awake(device, tag, "a request");
}

}  // namespace

EngineOptions options_of_conversation() {
  EngineOptions options;
  options.cache_tokens = options.page_tokens;
  options.max_running = 1;
  options.chunk_tokens = 2048;
  options.cache_grows = options.continues_answers = true;
  return options;
}

Engine::Engine(const layers::Decoder& model, const EngineOptions& options,
               const tokenizers::Tokenizer* tokenizer)
    : model_(model),
      tokenizer_(tokenizer),
      cache_(make_cache(model, options)),
      cache_grows_(options.cache_grows),
      schedule_(cache_, options.max_running, options.chunk_tokens),
      mixed_(model, cache_, options.observer) {
  if (captures(model) && options.observer == nullptr)
    ahead_.emplace(model, cache_, schedule_, options.max_running);
}

void Engine::sleep() {
  invariant(waiting() + running() == 0, "an engine that has requests does not sleep");
  if (turn_) return;
  if (ahead_) ahead_->drop_all();
  cache_.forget();
  // NCCL gives other ranks the memory behind the addresses that captured collectives have: there it stays.
  if (ahead_ && model_.ranks().tensor != nullptr) ahead_->forget_passes();
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
  require_all_awake(model_.device());
  make_room_for(request);
  schedule_.add(std::make_unique<Sequence>(
      Answer(std::move(request), next_id_, model_.config().max_positions, tokenizer_)));
  return next_id_++;
}

// An Error says what can never be answered.
void Engine::make_room_for(const Request& request) {
  const int64_t context = model_.config().max_positions;
  const bool grows = cache_grows_ && waiting() + running() == 0;
  RequestLimits{model_.config().vocab_size, context, grows ? context : cache_.tokens(), tokenizer_ != nullptr}
      .check(request);
  const int64_t needed = std::min(context, std::ssize(request.prompt) + request.max_new_tokens);
  if (needed <= cache_.tokens()) return;
  if (ahead_) {  // captured passes know where the cache is; their memory is given back first
    ahead_->drop_all();
    ahead_->forget_passes();
  }
  // Doubled, so that a long conversation is moved seldom.
  cache_.grow(std::min(context, std::max(needed, 2 * cache_.tokens())));
}

bool Engine::step() {
  require_all_awake(model_.device());
  new_tokens_.clear();
  if (ahead_ && ahead_->is_under_way()) {
    for (const SampledToken& each : ahead_->read()) take(each);
    return true;
  }
  const std::vector<ScheduledPart> parts = schedule_.next(model_.parameters().version());
  if (parts.empty()) return false;
  if (ahead_ && DecodingAhead::can_compute(parts)) {
    ahead_->start(parts);
    return true;
  }
  for (const SampledToken& each : mixed_.run(parts)) take(each);
  return true;
}

void Engine::take(const SampledToken& sampled) {
  Sequence& sequence = *sampled.sequence;
  const bool continues = sequence.take(sampled.token);
  if (sampled.token.id != ops::kNoToken) {
    ++sampled_;
    new_tokens_.push_back({sequence.result().id, sampled.token.id, sequence.answer.new_text()});
  }
  if (!continues) finish(sequence);
}

void Engine::finish(Sequence& sequence) {
  if (ahead_) ahead_->drop(sequence);
  if (sequence.result().finish != Finish::kFailed) cache_.keep_end(sequence);
  finished_.push_back(std::move(sequence.result()));
  schedule_.remove(sequence);
}

bool Engine::cancel(int64_t id) {
  Sequence* const sequence = schedule_.find(id);
  if (sequence == nullptr) return false;
  sequence->answer.end(Finish::kCancelled);
  finish(*sequence);
  return true;
}

void Engine::give_up() {
  if (ahead_) ahead_->drop_all();
  schedule_.remove_all();
  cache_.forget();
  new_tokens_.clear();
  finished_.clear();
}

std::vector<Completion> Engine::take_finished() { return std::exchange(finished_, {}); }

Engine::Counts Engine::counts() const {
  const Schedule::Counts& scheduled = schedule_.counts();
  return {.sampled = sampled_,
          .computed = mixed_.computed() + (ahead_ ? ahead_->computed() : 0),
          .found = scheduled.found,
          .preemptions = scheduled.preemptions,
          .recomputations = scheduled.recomputations};
}

}  // namespace temper::rollout
