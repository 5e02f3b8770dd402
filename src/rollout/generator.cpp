#include "rollout/generator.h"

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"

namespace temper::rollout {
namespace {

// Prompts are computed in pieces, so that activations stay small however long they are.
constexpr size_t kPrefillTokens = 2048;

}  // namespace

Tensor Generator::prefill(std::span<const int32_t> ids) {
  Tape tape(false);
  layers::DecoderInput input = layers::make_input(ids, std::vector{static_cast<int32_t>(ids.size())});
  for (int32_t& position : input.positions.values<int32_t>())
    position += static_cast<int32_t>(state_->length());
  layers::Decoder::Options options;
  options.state = &*state_;
  if (adapter_ != nullptr) options.adapters = {{adapter_, static_cast<int64_t>(ids.size())}};
  const Tensor hidden = model_.forward(tape, input, options).value;
  held_.insert(held_.end(), ids.begin(), ids.end());
  return hidden.narrow(0, hidden.dim(0) - 1, 1);
}

// Keys and values of other weights are of no use, and neither is work that was captured with another adapter.
void Generator::use(const layers::Adapter* adapter) {
  const uint64_t model_version = model_.parameters().version(),
                 adapter_version = adapter == nullptr ? 0 : adapter->parameters().version();
  if (adapter != adapter_ || model_version != model_version_ || adapter_version != adapter_version_)
    held_.clear();
  if (adapter != adapter_) loop_ = nullptr;
  adapter_ = adapter;
  model_version_ = model_version;
  adapter_version_ = adapter_version;
}

void Generator::fail_without_token(size_t generated, int64_t prompt_tokens) {
  held_.clear();  // the state may hold what is not a number
  fail(
      "[generate] the model's logits for new token {} (position {} of the text) have no largest finite "
      "value: "
      "NaN or infinity. Check the weights and adapters (did their training diverge?), or use --dtype float32",
      generated + 1, prompt_tokens + static_cast<int64_t>(generated));
}

void Generator::reserve(int64_t tokens) {
  if (!state_) state_.emplace(model_.make_state(tokens));
  // Doubled, so that a long conversation is moved seldom.
  if (state_->capacity() < tokens) {
    loop_ = nullptr;  // its memory first; and it is of the places that the state leaves, even where it stops
                      // halfway
    state_->reserve(std::min(model_.config().max_positions, std::max(tokens, 2 * state_->capacity())));
  }
  if (loop_ == nullptr) loop_ = std::make_unique<TokenLoop>(model_, *state_, adapter_);
}

Generation Generator::generate(std::span<const int32_t> prompt, const GenerateOptions& options,
                               const OnToken& on_token) {
  if (prompt.empty()) fail("[generate] the prompt has no tokens; give some text, or use a chat template");
  const int64_t context = model_.config().max_positions;
  const auto length = static_cast<int64_t>(prompt.size());
  if (length >= context)
    fail("[generate] the prompt has {} tokens; the model's context is {}", length, context);
  use(options.adapter);
  reserve(std::min(context, length + options.max_new_tokens));

  // At least the last prompt token is computed: its logits are needed.
  const auto same =
      std::mismatch(held_.begin(), held_.end(), prompt.begin(), prompt.end() - 1).first - held_.begin();
  held_.resize(static_cast<size_t>(state_->truncate(same)));

  Generation result;
  const double start = seconds_now();
  loop_->start(prompt, options.sampling);
  result.prompt_tokens = compute_prompt(prompt.subspan(held_.size()));
  std::shared_ptr<Reading> first = loop_->read();
  first->wait();
  const double prefilled = seconds_now();
  result.prefill_seconds = prefilled - start;
  result.reason = read_tokens(std::move(first), length, options, on_token, result.ids);
  result.decode_seconds = seconds_now() - prefilled;
  return result;
}

// The rest of a prompt, in pieces, and the choice of the token after it. Returns how many tokens it computed.
int64_t Generator::compute_prompt(std::span<const int32_t> rest) {
  const auto tokens = std::ssize(rest);
  Tensor last;
  while (!rest.empty()) {
    const size_t piece = std::min(rest.size(), kPrefillTokens);
    last = prefill(rest.first(piece));
    rest = rest.subspan(piece);
  }
  Tape tape(false);
  loop_->choose(model_.logits(tape, tape.constant(last), adapter_).value);
  return tokens;
}

// Reads the tokens after a prompt of `length` tokens, beginning with `chosen`, and computes more of them
// until the text ends. Returns why it ends.
StopReason Generator::read_tokens(std::shared_ptr<Reading> chosen, int64_t length,
                                  const GenerateOptions& options, const OnToken& on_token,
                                  std::vector<int32_t>& ids) {
  // A device computes a token while the host looks at the one before.
  const bool ahead = model_.device().type != DeviceType::kCpu;
  std::shared_ptr<Reading> next;
  const auto advance = [&] {
    loop_->step();
    next = loop_->read();
  };
  const int64_t context = model_.config().max_positions,
                most = std::min(options.max_new_tokens, context - length);
  while (std::ssize(ids) < most) {
    const bool final = std::ssize(ids) + 1 == most;
    if (ahead && !final) advance();
    const int32_t id = *static_cast<const int32_t*>(chosen->wait());
    if (id == ops::kNoToken) fail_without_token(ids.size(), length);
    if (std::find(options.stop_ids.begin(), options.stop_ids.end(), id) != options.stop_ids.end())
      return StopReason::kStopToken;
    ids.push_back(id);
    if (on_token && !on_token(id)) return StopReason::kCallback;
    if (final) return length + most >= context ? StopReason::kContext : StopReason::kLength;
    if (!ahead) advance();
    held_.push_back(id);
    chosen = std::move(next);
  }
  return StopReason::kLength;
}

}  // namespace temper::rollout
