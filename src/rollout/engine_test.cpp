#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "models/adapter.h"
#include "ops/token_log_probs/token_log_probs.h"
#include "rollout/engine_test_support.h"
#include "tests/support/tiny_model.h"

namespace temper::rollout {
namespace {

TEST(Engine, GreedyTokensAreThoseOfPassesOverWholeTexts) {
  for (const char* type : kTypes)
    for (const bool fast : {false, true}) {
      const auto model = tiny_model({.type = type,
                                     .ops = fast ? ops::OpsConfig() : TinyModel().ops,
                                     .experts = std::string_view(type) == "deepseek_v3"});
      const std::vector<Request> requests = mixed_requests(9);
      const std::vector<Completion> found = answers_of(model->decoder, requests);
      for (size_t i = 0; i < requests.size(); ++i)
        EXPECT_EQ(found[i].ids,
                  by_whole_passes(model->decoder, requests[i].prompt, requests[i].max_new_tokens))
            << type << ", request " << i;
    }
}

// Whatever other requests there are, and however the cache is cut: the same tokens and log-probabilities, bit
// for bit.
TEST(Engine, AnAnswerDependsOnItsRequestAlone) {
  if (!has_invariant_kernels()) GTEST_SKIP() << "this processor has no batch-invariant kernels";
  for (const char* type : kTypes) {
    const auto model = tiny_model(
        {.type = type, .ops = invariant_kernels(), .experts = std::string_view(type) == "deepseek_v3"});
    const std::vector<Request> requests = mixed_requests(32, 1.5);
    std::vector<Completion> alone;
    for (const Request& request : requests) alone.push_back(answers_of(model->decoder, {request})[0]);
    const auto expect_same = [&](const std::vector<Completion>& found, const std::string& how) {
      for (size_t i = 0; i < found.size(); ++i) {
        EXPECT_EQ(found[i].ids, alone[i].ids) << type << ", " << how << ", request " << i;
        EXPECT_EQ(found[i].columns.rollout_log_probs, alone[i].columns.rollout_log_probs)
            << type << ", " << how << ", request " << i;
      }
    };
    for (const int64_t count : {7, 32})
      expect_same(answers_of(model->decoder, {requests.begin(), requests.begin() + count}),
                  fmt::format("{} at once", count));
    for (const int64_t page_tokens : {1, 5, 16, 64})
      expect_same(answers_of(model->decoder, requests, {.cache_tokens = 4096, .page_tokens = page_tokens}),
                  fmt::format("pages of {}", page_tokens));
    expect_same(answers_of(model->decoder, requests, {.max_running = 5, .chunk_tokens = 64}), "small parts");
    expect_same(answers_of(model->decoder, requests, {.prefix_cache = false}), "no prefix cache");
    Engine tight(model->decoder,
                 {.cache_tokens = 160, .page_tokens = 4, .max_running = 16, .chunk_tokens = 64});
    for (int round = 0; round < 2; ++round) {  // the second finds pages of the first
      const int64_t found_before = tight.counts().found;
      for (const Request& request : requests) tight.add(request);
      std::vector<Completion> found;
      for (auto& [id, each] : answers(tight)) found.push_back(std::move(each));
      expect_same(found, fmt::format("few pages, round {}", round));
      EXPECT_GT(tight.counts().preemptions, 0) << type;
      if (round == 1 && std::string_view(type) == "qwen3") {
        EXPECT_GT(tight.counts().found, found_before);
      }
    }
  }
}

// The same of adapters of several ranks, together with each other and the model alone.
TEST(Engine, AnAdaptersAnswerDependsOnItsRequestAlone) {
  if (!has_invariant_kernels()) GTEST_SKIP() << "this processor has no batch-invariant kernels";
  for (const char* type : {"qwen3", "qwen3_moe", "gemma3_text"}) {
    const auto model = tiny_model({.type = type, .ops = invariant_kernels()});
    std::vector<std::unique_ptr<layers::Adapter>> adapters(1);
    for (const int64_t rank : {1, 2, 8}) {
      adapters.push_back(models::new_adapter(*model, {.rank = rank, .alpha = 16}, 7, ""));
      adapters.back()->parameters().initialize(static_cast<uint64_t>(rank), 0.3);
    }
    std::vector<Request> requests = mixed_requests(32, 1.5);
    for (size_t i = 0; i < requests.size(); ++i) requests[i].adapter = adapters[i % adapters.size()].get();
    std::vector<Completion> alone;
    for (const Request& request : requests) alone.push_back(answers_of(model->decoder, {request})[0]);
    for (const EngineOptions& options : {EngineOptions{}, EngineOptions{.max_running = 5, .chunk_tokens = 64},
                                         EngineOptions{.prefix_cache = false}}) {
      const std::vector<Completion> found = answers_of(model->decoder, requests, options);
      for (size_t i = 0; i < found.size(); ++i) {
        EXPECT_EQ(found[i].ids, alone[i].ids) << type << ", request " << i;
        EXPECT_EQ(found[i].columns.rollout_log_probs, alone[i].columns.rollout_log_probs)
            << type << ", request " << i;
      }
    }
  }
}

// The same forward pass as training's, over prompt and answer.
TEST(Engine, LogProbabilitiesAreThoseOfTraining) {
  for (const char* type : kTypes) {
    const bool invariant = has_invariant_kernels(), experts = std::string_view(type) == "deepseek_v3";
    const auto model = tiny_model(
        {.type = type, .ops = invariant ? invariant_kernels() : TinyModel().ops, .experts = experts});
    std::vector<Request> requests = mixed_requests(12, 1.3);
    for (size_t i = 0; i < requests.size(); ++i) {
      requests[i].log_prob_temperature = std::array{0.6, 1.0, 1.3, 0.004}[i % 4];
      requests[i].sampling.top_p = 0.9;  // of what is sampled, not of the log-probabilities
    }
    const std::vector<Completion> found = answers_of(model->decoder, requests);
    double largest = 0;
    for (size_t i = 0; i < requests.size(); ++i) {
      Ids all = requests[i].prompt;
      all.insert(all.end(), found[i].ids.begin(), found[i].ids.end());
      Tape tape;
      const Var hidden = model->decoder.forward(
          tape, layers::make_input(all, std::vector{static_cast<int32_t>(all.size())}));
      const auto first = std::ssize(requests[i].prompt) - 1, count = std::ssize(found[i].ids);
      const Var logits = model->decoder.logits(tape, primitives::narrow(tape, hidden, 0, first, count));
      const Tensor expected =
          ops::token_log_probs(tape, model->decoder.ops().at<ops::TokenLogProbs>("head"), logits,
                               Tensor::from(found[i].ids), requests[i].log_prob_temperature)
              .log_probs.value;
      for (int64_t t = 0; t < count; ++t)
        largest = std::max(largest, std::min(1.0, requests[i].log_prob_temperature) *
                                        std::abs(static_cast<double>(expected.data<float>()[t]) -
                                                 found[i].columns.rollout_log_probs[static_cast<size_t>(t)]));
    }
    const bool one_form = model->decoder.decodes_as_prompts();
    RecordProperty(std::string("largest_difference_") + type, std::to_string(largest));
    EXPECT_LE(largest, invariant && one_form ? 0 : 1e-4) << type;
  }
}

TEST(Engine, GroupsShareTheirPrompt) {
  for (const char* type : {"qwen3", "qwen3_next"}) {
    const auto model = tiny_model({.type = type});
    std::vector<Request> requests;
    const Ids prompt = prompt_of(50, 3);
    for (uint64_t seed = 0; seed < 6; ++seed) requests.push_back(request_of(prompt, seed, 1.5, 8));
    Engine engine(model->decoder, {.page_tokens = 16});
    for (const Request& request : requests) engine.add(request);
    const auto found = answers(engine);
    // Without a state at its end, a hybrid's page is of no use; 64 tokens are the first such end.
    const int64_t shared = std::string_view(type) == "qwen3" ? 48 : 0;
    for (const auto& [id, each] : found) EXPECT_EQ(each.cached_tokens, id == 0 ? 0 : shared);
  }
}

// Pages are found again only where the same weights made them.
TEST(Engine, NoPageSurvivesAnUpdateOfTheWeights) {
  for (const char* type : {"qwen3", "qwen3_next"}) {
    const auto model = tiny_model({.type = type});
    const Request request = request_of(prompt_of(40, 2), 1, 1.0, 10);
    Engine engine(model->decoder, {});
    engine.add(request);
    const Completion before = answers(engine).begin()->second;
    engine.add(request);
    EXPECT_EQ(answers(engine).begin()->second.ids, before.ids);
    model->decoder.parameters().initialize(9, 0.3);
    engine.add(request);
    const Completion renewed = answers(engine).begin()->second;
    EXPECT_EQ(renewed.cached_tokens, 0);
    EXPECT_EQ(renewed.ids, answers_of(model->decoder, {request})[0].ids);
    EXPECT_NE(renewed.ids, before.ids);
    engine.add(request);
    engine.step();
    engine.step();
    model->decoder.parameters().initialize(8, 0.3);
    const Completion across = answers(engine).begin()->second;  // changed on its way
    engine.add(request);
    const Completion after = answers(engine).begin()->second;
    EXPECT_EQ(after.ids, answers_of(model->decoder, {request})[0].ids);
    EXPECT_NE(after.ids, renewed.ids);
    EXPECT_EQ(across.recomputations, 1);
    EXPECT_EQ(engine.counts().recomputations, 1);
    EXPECT_EQ(engine.counts().preemptions, 0);
    EXPECT_NE(across.versions.front(), across.versions.back());
    EXPECT_EQ(across.versions.back(), model->decoder.parameters().version());
    // Its last tokens are those of the new weights behind what was there.
    Ids so_far = request.prompt;
    size_t old = 0;
    while (across.versions[old] == across.versions.front()) so_far.push_back(across.ids[old++]);
    const Completion rest =
        answers_of(model->decoder, {request_of(so_far, 1, 1.0, 10 - static_cast<int64_t>(old))})[0];
    EXPECT_EQ(Ids(across.ids.begin() + static_cast<std::ptrdiff_t>(old), across.ids.end()), rest.ids);
  }
}

// What unused pages hold changes nothing.
TEST(Engine, PoisonedPagesChangeNothing) {
  constexpr size_t kMemory = size_t{4} << 20;
  for (const char* type : kTypes) {
    const auto model = tiny_model({.type = type});
    const std::vector<Request> requests = mixed_requests(9, 1.0);
    const std::vector<Completion> expected = answers_of(model->decoder, requests);
    {
      const Tensor memory = Tensor::empty({kMemory}, DType::kF32, MemoryTag::kKvCache);
      const auto values = memory.values<float>();
      std::fill(values.begin(), values.end(), std::nanf(""));
    }
    const std::vector<Completion> found =
        answers_of(model->decoder, requests, {.cache_tokens = 1 << 11, .page_tokens = 8});
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(found[i].ids, expected[i].ids) << type;
      EXPECT_EQ(found[i].finish, expected[i].finish) << type;
    }
  }
}

TEST(Engine, AdaptersInOneBatch) {
  for (const char* type : {"qwen3", "qwen3_next", "deepseek_v3"}) {
    const auto model = tiny_model({.type = type, .ops = {}});
    const auto adapter_of = [&](uint64_t seed) {
      auto adapter = models::new_adapter(*model, {.rank = 4, .alpha = 16}, seed, "");
      adapter->parameters().initialize(seed, 0.3);
      return adapter;
    };
    const auto a = adapter_of(1), b = adapter_of(2);
    std::vector<Request> requests = mixed_requests(10);
    for (size_t i = 0; i < requests.size(); ++i)
      requests[i].adapter = std::array<const layers::Adapter*, 3>{nullptr, a.get(), b.get()}[i % 3];
    const std::vector<Completion> found = answers_of(model->decoder, requests);
    for (size_t i = 0; i < requests.size(); ++i)
      EXPECT_EQ(found[i].ids, by_whole_passes(model->decoder, requests[i].prompt, requests[i].max_new_tokens,
                                              requests[i].adapter))
          << type << ", request " << i;
  }
}

TEST(Engine, EndsAreReported) {
  const auto model = tiny_model();
  const Ids prompt = prompt_of(5, 1);
  const Completion free = answers_of(model->decoder, {request_of(prompt)})[0];
  EXPECT_EQ(free.finish, Finish::kLength);
  EXPECT_EQ(free.ids.size(), 12u);
  EXPECT_EQ(free.columns.rollout_log_probs.size(), 12u);
  Request stopping = request_of(prompt);
  stopping.stop_ids = {free.ids[3]};
  const Completion stopped = answers_of(model->decoder, {stopping})[0];
  EXPECT_EQ(stopped.finish, Finish::kStopToken);
  EXPECT_EQ(stopped.ids.back(), free.ids[3]);  // it is one of them
  EXPECT_EQ(stopped.columns.rollout_log_probs.size(), stopped.ids.size());
  const Completion full = answers_of(model->decoder, {request_of(prompt_of(60, 1))})[0];
  EXPECT_EQ(full.finish, Finish::kContext);
  EXPECT_EQ(full.ids.size(), 4u);
}

TEST(Engine, ASpecialTokensNameStopsAtItsId) {
  const auto model = tiny_model();
  const Request plain = request_of(prompt_of(5, 1));
  const Completion free = answers_of(model->decoder, {plain})[0];
  const auto at = std::find_if(free.ids.begin(), free.ids.end(), [](int32_t id) { return id != '\\' - 'A'; });
  const tokenizers::Tokenizer tokenizer = letters(*at);
  for (const bool skip : {false, true})
    for (const std::string& stop : {std::string("never"), std::string(1, static_cast<char>('A' + *at))}) {
      Request request = plain;
      request.stop_strings = {stop};
      request.skip_special_tokens = skip;
      Engine engine(model->decoder, {}, &tokenizer);
      engine.add(request);
      const Completion found = answers(engine).begin()->second;
      const Ids said(free.ids.begin(), stop == "never" ? free.ids.end() : at);
      EXPECT_EQ(found.finish, stop == "never" ? Finish::kLength : Finish::kStopToken);
      EXPECT_EQ(found.ids.size(), said.size() + (stop == "never" ? 0 : 1));
      EXPECT_EQ(found.text, tokenizer.decode(said, skip));  // equal ids are equal texts
    }
}

TEST(Engine, StopStringsMayLieAcrossTokens) {
  const tokenizers::Tokenizer tokenizer = letters();
  const auto model = tiny_model();
  const Completion free = answers_of(model->decoder, {request_of(prompt_of(5, 1))})[0];
  const std::string text = tokenizer.decode(free.ids);
  Request request = request_of(prompt_of(5, 1));
  request.stop_strings = {"no such text", text.substr(4, 3)};
  Engine engine(model->decoder, {}, &tokenizer);
  engine.add(request);
  const Completion found = answers(engine).begin()->second;
  EXPECT_EQ(found.finish, Finish::kStopString);
  EXPECT_EQ(found.text, text.substr(0, text.find(text.substr(4, 3))));
  EXPECT_EQ(found.ids.size(), text.find(text.substr(4, 3)) + 3);
}

// One request whose logits are no distribution does not disturb the others.
TEST(Engine, AFailureIsOneRequests) {
  const auto model = tiny_model();
  const auto broken = models::new_adapter(*model, {.rank = 2, .alpha = 4}, 1, "");
  broken->parameters().initialize(1, 1e30);
  std::vector<Request> requests = mixed_requests(3);
  requests[1].adapter = broken.get();
  const std::vector<Completion> found = answers_of(model->decoder, requests);
  EXPECT_EQ(found[1].finish, Finish::kFailed);
  EXPECT_EQ(found[1].error.find("[generate] the model's logits for new token 1"), 0u) << found[1].error;
  for (const size_t other : {0, 2})
    EXPECT_EQ(found[other].ids, answers_of(model->decoder, {requests[other]})[0].ids);
}

TEST(Engine, RefusesWhatCannotBeAnswered) {
  const auto model = tiny_model();
  Engine engine(model->decoder, {.cache_tokens = 40, .page_tokens = 8});
  EXPECT_THROW(engine.add(request_of({})), Error);
  EXPECT_THROW(engine.add(request_of(Ids(64, 1))), Error);
  EXPECT_THROW(engine.add(request_of({3, 48})), Error);
  EXPECT_THROW(engine.add(request_of(prompt_of(30, 1))), Error);  // 42 tokens
  engine.add(request_of(prompt_of(28, 1)));
  EXPECT_EQ(answers(engine).begin()->second.ids.size(), 12u);
  EXPECT_THROW(Engine(model->decoder, {.max_running = 0}), Error);
}

}  // namespace
}  // namespace temper::rollout
