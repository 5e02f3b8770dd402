#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "layers/decoder.h"
#include "rollout/passes/token_loop.h"

namespace temper::rollout {

struct GenerateOptions {
  ops::SamplingOptions sampling = {};
  int64_t max_new_tokens = 512;
  std::vector<int32_t> stop_ids = {};
  const layers::Adapter* adapter = nullptr;  // of the generator's model; null: the model alone
};

enum class StopReason { kStopToken, kLength, kContext, kCallback };

struct Generation {
  std::vector<int32_t> ids;  // without the stop token
  StopReason reason = StopReason::kLength;
  int64_t prompt_tokens = 0;  // computed, not taken from the state
  double prefill_seconds = 0, decode_seconds = 0;
};

// Generates with one state that it keeps: a prompt that begins with what the state holds computes only the
// rest, if the same adapter and the same version of all weights computed it. On a device the loop runs one
// step ahead of the tokens that the host has seen: a token that ends the text may have been computed in vain.
// The decoder must outlive it. One generator serves one thread, and a device serves one generator at a time.
class Generator {
 public:
  explicit Generator(const layers::Decoder& model) : model_(model) {}
  Generator(const Generator&) = delete;  // the loop knows where the state is
  Generator& operator=(const Generator&) = delete;

  // Called with each new token; returning false stops. Logits that are no distribution (NaN, infinity) are an
  // Error that names the token.
  using OnToken = std::function<bool(int32_t id)>;
  Generation generate(std::span<const int32_t> prompt, const GenerateOptions& options,
                      const OnToken& on_token = {});

 private:
  void use(const layers::Adapter* adapter);
  Tensor prefill(std::span<const int32_t> ids);  // hidden state after the last of ids, [1, hidden]
  int64_t compute_prompt(std::span<const int32_t> rest);
  StopReason read_tokens(std::shared_ptr<Reading> chosen, int64_t length, const GenerateOptions& options,
                         const OnToken& on_token, std::vector<int32_t>& ids);
  void reserve(int64_t tokens);
  [[noreturn]] void fail_without_token(size_t generated, int64_t prompt_tokens);

  const layers::Decoder& model_;
  std::optional<layers::SequenceState> state_;
  std::unique_ptr<TokenLoop> loop_;
  std::vector<int32_t> held_;                         // the tokens that the state holds
  const layers::Adapter* adapter_ = nullptr;          // that computed them
  uint64_t model_version_ = 0, adapter_version_ = 0;  // of the weights that computed them
};

}  // namespace temper::rollout
