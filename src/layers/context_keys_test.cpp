#include "layers/context_keys.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/text.h"

namespace temper::layers {
namespace {

std::vector<int32_t> list_of(const Tensor& tensor) {
  return {tensor.values<int32_t>().begin(), tensor.values<int32_t>().end()};
}

DecoderInput documents_of(const std::vector<int32_t>& lengths, std::vector<int32_t> continued) {
  const int32_t tokens = std::accumulate(lengths.begin(), lengths.end(), 0);
  return make_input(std::vector<int32_t>(static_cast<size_t>(tokens)), lengths, std::move(continued));
}

// Of a document with those that it continues the tokens up to one of its own, by looking at every token.
std::vector<int32_t> keys_of(const DecoderInput& input, int32_t token, int64_t window) {
  const auto starts = input.cu_seqlens.values<int32_t>();
  size_t document = 0;
  while (starts[document + 1] <= token) ++document;
  std::vector<int32_t> keys;
  if (!input.continued.empty() && input.continued[document] >= 0) {
    const auto before = static_cast<size_t>(input.continued[document]);
    for (int32_t t = starts[before]; t < starts[before + 1]; ++t) keys.push_back(t);
  }
  for (int32_t t = starts[document]; t <= token; ++t) keys.push_back(t);
  if (window > 0 && std::ssize(keys) > window) keys.erase(keys.begin(), keys.end() - window);
  return keys;
}

// Which tokens a rank has in the order in which it finds them: its own, then those that come, or all.
std::vector<int32_t> found_by(const TokenCut& cut, const std::vector<ContextKeys>& of_ranks, int rank) {
  std::vector<int32_t> all(static_cast<size_t>(cut.tokens()));
  std::iota(all.begin(), all.end(), 0);
  const auto& fetch = of_ranks[static_cast<size_t>(rank)].fetch;
  if (!fetch) return all;
  const auto tokens_of = [&](int of) {
    std::vector<int32_t> own;
    for (const TokenRange& range : cut.of(of))
      for (int64_t t = range.first; t < range.first + range.count; ++t)
        own.push_back(static_cast<int32_t>(t));
    return own;
  };
  std::vector<int32_t> found = tokens_of(rank);
  for (int other = 0; other < cut.ranks(); ++other) {
    const TokenFetch& its = *of_ranks[static_cast<size_t>(other)].fetch;
    const std::vector<int32_t> own = tokens_of(other), given = list_of(its.given.ids);
    const auto begin = std::accumulate(its.send.begin(), its.send.begin() + rank, int64_t{0});
    const int64_t count = its.send[static_cast<size_t>(rank)];
    EXPECT_EQ(count, fetch->receive[static_cast<size_t>(other)]);
    for (int64_t i = begin; i < begin + count; ++i)
      found.push_back(own[static_cast<size_t>(given[static_cast<size_t>(i)])]);
  }
  return found;
}

// Every query's last keys are those that it sees; how many tokens come, of all ranks.
int64_t expect_keys(const DecoderInput& input, int ranks, int64_t window) {
  std::vector<int64_t> costs(static_cast<size_t>(input.ids.numel()));
  std::iota(costs.begin(), costs.end(), 1);
  std::vector<ContextKeys> of_ranks;
  TokenCut cut;
  for (int rank = 0; rank < ranks; ++rank) {
    cut = TokenCut::balanced(std::array<int64_t, 1>{input.ids.numel()}, costs, ranks, 1, rank);
    of_ranks.push_back(ContextDocuments(input, cut).of(window));
  }
  int64_t come = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const ContextKeys& keys = of_ranks[static_cast<size_t>(rank)];
    const std::vector<int32_t> found = found_by(cut, of_ranks, rank), seen = list_of(keys.seen.ids),
                               starts_q = list_of(keys.cu_seqlens_q), starts_k = list_of(keys.cu_seqlens_k);
    come += std::ssize(found) - cut.tokens_of(rank);
    std::vector<int32_t> queries;
    for (const TokenRange& range : cut.of(rank))
      for (int64_t t = range.first; t < range.first + range.count; ++t)
        queries.push_back(static_cast<int32_t>(t));
    for (size_t piece = 0; piece + 1 < starts_q.size(); ++piece)
      for (int32_t q = starts_q[piece]; q < starts_q[piece + 1]; ++q) {
        const int32_t end = starts_k[piece + 1] - (starts_q[piece + 1] - q - 1),
                      begin = window > 0
                                  ? static_cast<int32_t>(std::max<int64_t>(starts_k[piece], end - window))
                                  : starts_k[piece];
        std::vector<int32_t> its;
        for (int32_t k = begin; k < end; ++k)
          its.push_back(found[static_cast<size_t>(seen[static_cast<size_t>(k)])]);
        EXPECT_EQ(its, keys_of(input, queries[static_cast<size_t>(q)], window))
            << "rank " << rank << ", query " << q;
      }
  }
  return come;
}

TEST(ContextKeys, EveryQuerySeesItsDocumentAlone) {
  for (const std::vector<int32_t>& lengths : {std::vector<int32_t>{24}, {1, 2, 7, 14}, {3, 3, 9, 1, 8}})
    for (const int ranks : {2, 3, 4})
      for (const int64_t window :
           {int64_t{0}, int64_t{1}, int64_t{2}, int64_t{5}, int64_t{30}, int64_t{1} << 40}) {
        SCOPED_TRACE(fmt::format("{} documents, {} ranks, window {}", lengths.size(), ranks, window));
        expect_keys(documents_of(lengths, {}), ranks, window);
      }
}

TEST(ContextKeys, AnswersSeeThePromptThatTheyContinue) {
  for (const int ranks : {2, 3, 4})
    for (const int64_t window :
         {int64_t{0}, int64_t{1}, int64_t{2}, int64_t{5}, int64_t{30}, int64_t{1} << 40}) {
      SCOPED_TRACE(fmt::format("{} ranks, window {}", ranks, window));
      expect_keys(documents_of({6, 4, 3, 8, 3}, {-1, 0, 0, -1, 3}), ranks, window);
    }
}

// Of one document each of two pieces a rank needs a window's tokens before it, or what there is.
TEST(ContextKeys, WindowsFetchTheTokensBeforePieces) {
  EXPECT_EQ(expect_keys(documents_of({48}, {}), 2, 3),
            2 * 2);  // pieces 0 and 3, and 1 and 2 next to each other
  EXPECT_EQ(expect_keys(documents_of({48}, {}), 4, 3), 6 * 2);
  EXPECT_EQ(expect_keys(documents_of({48}, {}), 4, 1), 0);
  EXPECT_EQ(expect_keys(documents_of({24, 24}, {}), 2, 3), 2 * 2);
}

TEST(ContextKeys, WithoutAWindowAllTokensCome) {
  const TokenCut cut = TokenCut::of_parts(std::array<int64_t, 1>{8}, 2, 1);
  const ContextDocuments documents(documents_of({8}, {}), cut);
  EXPECT_FALSE(documents.of(0).fetch);
  EXPECT_TRUE(documents.of(2).fetch);
  EXPECT_EQ(&documents.of(2), &documents.of(2));  // made once
}

}  // namespace
}  // namespace temper::layers
