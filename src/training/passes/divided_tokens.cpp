#include "training/passes/divided_tokens.h"

#include <algorithm>

#include "base/error.h"

namespace temper::training {

Tensor all_tokens(const layers::Decoder& model, const layers::TokenCut& cut, const Tensor& own) {
  if (cut.is_whole()) return own;
  const auto mine = own.values<float>();
  const auto ranks = model.ranks().context->gather("numbers of tokens", std::span<const float>(mine));
  const Tensor all = Tensor::empty({cut.tokens()}, DType::kF32, MemoryTag::kData);
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    cut.put(static_cast<int>(rank), Tensor::from(ranks[rank]), all);
  return all;
}

DividedTokens::DividedTokens(const layers::Decoder& model, const layers::TokenCut& cut,
                             std::span<const int32_t> tokens)
    : model_(model),
      cut_(cut),
      tokens_(tokens.begin(), tokens.end()),
      own_(cut.chosen(tokens, cut.place())) {}

std::vector<float> DividedTokens::gather(std::span<const float> own) const {
  if (cut_.is_whole()) return {own.begin(), own.end()};
  const auto ranks = model_.ranks().context->gather("numbers of some tokens", own);
  std::vector<float> all(tokens_.size());
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const std::vector<size_t> index = index_of(static_cast<int>(rank));
    const size_t count = std::min(index.size(), ranks[rank].size());
    // In a plan the others give as many numbers as this rank, which are not theirs.
    invariant(only_counts(model_.device()) || ranks[rank].size() == index.size(),
              "a context rank gives a number for each of its tokens");
    for (size_t i = 0; i < count; ++i) all[index[i]] = ranks[rank][i];
  }
  return all;
}

}  // namespace temper::training
