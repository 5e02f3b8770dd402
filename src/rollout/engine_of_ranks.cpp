#include "rollout/engine_of_ranks.h"

#include <array>
#include <tuple>

#include "base/error.h"
#include "collectives/fields.h"

namespace temper::rollout {
namespace {

template <class Request>
auto fields_of(Request& request) {
  auto& [prompt, max_new_tokens, seed, skip_special_tokens] = request;
  return std::tie(prompt, max_new_tokens, seed, skip_special_tokens);
}

}  // namespace

EngineOfRanks::EngineOfRanks(const layers::Decoder& model, const EngineOptions& options,
                             const tokenizers::Tokenizer* tokenizer)
    : model_(model),
      tensor_(model.ranks().tensor),
      in_step_(model.ranks().forward_lockstep_group()),
      engine_(model, options, tokenizer) {}

int64_t EngineOfRanks::enqueue(const Asked& asked) {
  Request request = like_;
  request.prompt = asked.prompt;
  request.max_new_tokens = asked.max_new_tokens;
  request.sampling.seed = asked.seed;
  request.skip_special_tokens = asked.skip_special_tokens;
  return engine_.add(std::move(request));
}

int64_t EngineOfRanks::add(std::vector<int32_t> prompt, int64_t max_new_tokens, uint64_t seed,
                           bool skip_special_tokens) {
  invariant(leads(), "requests are asked for by the rank that leads");
  Asked asked{std::move(prompt), max_new_tokens, seed, skip_special_tokens};
  const int64_t id = enqueue(asked);
  if (tensor_ != nullptr) untold_.push_back(std::move(asked));
  return id;
}

// Whether the leader is done and whether it stops, then the requests.
std::string EngineOfRanks::written(const std::vector<Asked>& asked, Say say) {
  std::string bytes;
  collectives::put(bytes, say);
  for (const Asked& each : asked) collectives::put_fields(bytes, fields_of(each));
  return bytes;
}

std::vector<EngineOfRanks::Asked> EngineOfRanks::read(std::string_view message, Say& say) {
  collectives::take(message, say);
  std::vector<Asked> asked;
  while (!message.empty()) collectives::take_fields(message, fields_of(asked.emplace_back()));
  return asked;
}

// What the leader was asked since the last round, and what it says.
EngineOfRanks::Say EngineOfRanks::follow(Say own) {
  if (tensor_ == nullptr) return own;
  const std::string message = tensor_->broadcast_object("requests", written(untold_, own), 0);
  untold_.clear();
  if (leads()) return own;
  Say leaders;
  for (const Asked& asked : read(message, leaders)) enqueue(asked);
  return leaders;
}

// One token, whose layers the others need this rank for.
void EngineOfRanks::pass_nothing() const {
  Tape tape(false);
  layers::Decoder::Options options;
  options.adapters = {{like_.adapter, 1}};
  const std::array<int32_t, 1> token{0};
  model_.forward(tape, layers::make_input(token, std::vector<int32_t>{1}), options);
}

EngineOfRanks::Round EngineOfRanks::round(bool done, bool stop) {
  const Say say = follow({done, stop});
  const bool works = engine_.waiting() + engine_.running() > 0;
  std::array<int64_t, 3> ranks{works, !say.done, say.stop};
  if (in_step_ != nullptr) in_step_->sum("requests that run", std::span<int64_t>(ranks));
  if (ranks[2] > 0) return Round::kStopped;
  if (ranks[0] == 0) return ranks[1] == 0 ? Round::kDone : Round::kIdle;
  if (works)
    engine_.step();
  else
    pass_nothing();
  return Round::kComputed;
}

std::vector<Completion> EngineOfRanks::take_finished() {
  std::vector<Completion> finished = engine_.take_finished();
  if (!leads()) finished.clear();
  return finished;
}

}  // namespace temper::rollout
