#include "rollout/generator.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"

namespace temper::rollout {
namespace {

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Prompts are computed in pieces, so that activations stay small however long they are.
constexpr size_t kPrefillTokens = 2048;

}  // namespace

Tensor Generator::advance(std::span<const int32_t> ids) {
  Tape tape(false);
  layers::DecoderInput input = layers::make_input(ids, std::vector{static_cast<int32_t>(ids.size())});
  for (int32_t& position : input.positions.values<int32_t>())
    position += static_cast<int32_t>(cache_->length());
  layers::Decoder::Options options;
  options.cache = cache_.get();
  const Tensor hidden = model_.forward(tape, input, options).value;
  held_.insert(held_.end(), ids.begin(), ids.end());
  const Tensor last = hidden.narrow(0, hidden.dim(0) - 1, 1);
  return model_.logits(tape, tape.constant(last)).value.to(DType::kF32).reshape({-1}).on({});
}

void Generator::reserve(int64_t tokens) {
  const auto& config = model_.config();
  if (cache_ == nullptr)
    cache_ = std::make_unique<layers::KvCache>(config.num_layers, tokens, config.num_kv_heads,
                                               config.head_dim, model_.parameters().dtype(), model_.device());
  // Doubled, so that a long conversation is moved seldom.
  if (cache_->capacity() < tokens)
    cache_->reserve(std::min(config.max_positions, std::max(tokens, 2 * cache_->capacity())));
}

Generation Generator::generate(std::span<const int32_t> prompt, const GenerateOptions& options,
                               const OnToken& on_token) {
  if (prompt.empty()) fail("[generate] the prompt has no tokens; give some text, or use a chat template");
  const int64_t context = model_.config().max_positions;
  const auto length = static_cast<int64_t>(prompt.size());
  if (length >= context)
    fail("[generate] the prompt has {} tokens; the model's context is {}", length, context);
  reserve(std::min(context, length + options.max_new_tokens));

  // At least the last prompt token is computed: its logits are needed.
  const auto same =
      std::mismatch(held_.begin(), held_.end(), prompt.begin(), prompt.end() - 1).first - held_.begin();
  cache_->truncate(same);
  held_.resize(static_cast<size_t>(same));

  Generation result;
  const double start = seconds_now();
  Tensor logits;
  for (std::span<const int32_t> rest = prompt.subspan(held_.size()); !rest.empty();) {
    const size_t piece = std::min(rest.size(), kPrefillTokens);
    logits = advance(rest.first(piece));
    rest = rest.subspan(piece);
    result.prompt_tokens += static_cast<int64_t>(piece);
  }
  const double prefilled = seconds_now();
  result.prefill_seconds = prefilled - start;
  std::vector<int32_t> history(prompt.begin(), prompt.end());
  while (true) {
    if (static_cast<int64_t>(result.ids.size()) >= options.max_new_tokens) break;
    const int32_t id = ops::sample(logits.values<float>(), options.sampling, history, history.size());
    if (std::find(options.stop_ids.begin(), options.stop_ids.end(), id) != options.stop_ids.end()) {
      result.reason = StopReason::kStopToken;
      break;
    }
    result.ids.push_back(id);
    history.push_back(id);
    if (on_token && !on_token(id)) {
      result.reason = StopReason::kCallback;
      break;
    }
    if (static_cast<int64_t>(history.size()) >= context) {
      result.reason = StopReason::kContext;
      break;
    }
    if (static_cast<int64_t>(result.ids.size()) < options.max_new_tokens) logits = advance(std::span(&id, 1));
  }
  result.decode_seconds = seconds_now() - prefilled;
  return result;
}

}  // namespace temper::rollout
