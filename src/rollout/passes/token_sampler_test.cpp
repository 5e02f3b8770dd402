#include "rollout/passes/token_sampler.h"

#include <gtest/gtest.h>

#include "rollout/requests_test_support.h"
#include "tests/support/tiny_model.h"

namespace temper::rollout {
namespace {

Tensor hidden_of(int64_t rows, int64_t width) {
  std::vector<float> values;
  for (int64_t i = 0; i < rows * width; ++i) values.push_back(static_cast<float>(i * 37 % 101) / 50 - 1);
  return Tensor::from(values).reshape({rows, width});
}

// Three prompts of two tokens, all of them computed but the last token of the second.
struct ThreePrompts {
  ThreePrompts() {
    for (int32_t i = 0; i < 3; ++i) {
      Request request = request_of({i, i + 1});
      request.log_prob_temperature = i + 1;
      sequences.push_back(sequence_of(request, i));
      sequences.back()->computed = i == 1 ? 1 : 2;
      parts.push_back({sequences.back().get(), sequences.back()->computed, false});
    }
  }
  std::vector<std::unique_ptr<Sequence>> sequences;
  std::vector<ScheduledPart> parts;
};

TEST(TokenSampler, ChoosesForSequencesThatAreComputed) {
  const auto model = tiny_model();
  const TokenSampler sampler(model->decoder);
  const ThreePrompts prompts;
  const Tensor hidden = hidden_of(5, 32);
  const TokenSampler::Sampled found = sampler.next_tokens(prompts.parts, hidden);
  ASSERT_EQ(found.tokens.size(), 2u);
  EXPECT_EQ(found.logits.dim(0), 2);
  for (size_t i = 0; i < 2; ++i) {  // as each alone, at its temperature
    const ScheduledPart& part = prompts.parts[2 * i];
    const TokenSampler::Sampled alone = sampler.next_tokens({part}, hidden.narrow(0, i == 0 ? 0 : 3, 2));
    EXPECT_EQ(found.tokens[i].sequence, part.sequence);
    EXPECT_EQ(found.tokens[i].token.id, alone.tokens[0].token.id);
    EXPECT_EQ(found.tokens[i].token.log_prob, alone.tokens[0].token.log_prob);
  }
  EXPECT_TRUE(sampler.next_tokens({prompts.parts[1]}, hidden).tokens.empty());
}

TEST(TokenSampler, TakesForcedTokensAndPenalizesThoseSeen) {
  const auto model = tiny_model();
  const TokenSampler sampler(model->decoder);
  const Tensor hidden = hidden_of(1, 32);
  const auto chosen = [&](const Request& request) {
    const auto sequence = sequence_of(request);
    sequence->computed = 1;
    return sampler.next_tokens({{sequence.get(), 1, false}}, hidden).tokens[0].token;
  };
  const ChosenToken free = chosen(request_of({1}));
  Request request = request_of({1});
  request.forced = {(free.id + 1) % 48};
  EXPECT_EQ(chosen(request).id, (free.id + 1) % 48);
  EXPECT_LT(chosen(request).log_prob, free.log_prob);
  request = request_of({free.id});
  request.sampling.repetition_penalty = 1e6;
  EXPECT_NE(chosen(request).id, free.id);
}

}  // namespace
}  // namespace temper::rollout
