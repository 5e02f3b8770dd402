#pragma once
#include <span>
#include <string_view>
#include <vector>

#include "layers/decoder.h"

namespace temper::training {

// [tokens] float32 on the CPU, a number for each token of a pass, from those [own tokens] of each context
// rank of the model: on all of them. The same where one rank has all tokens.
Tensor all_tokens(const layers::Decoder& model, const layers::TokenCut& cut, const Tensor& own);

// What the last stage of a pipeline knows of a pass or of several: `count` values, on all stages, which call
// it. What the others bring means nothing. The same where there is one stage.
template <class T>
std::vector<T> of_last_stage(const layers::Decoder& model, std::string_view name, std::vector<T> own,
                             int64_t count) {
  const layers::ModelStages& stages = model.ranks().stages;
  if (stages.has_last())
    invariant(std::ssize(own) == count, fmt::format("{} {}, expected {}", own.size(), name, count));
  own.resize(static_cast<size_t>(count));  // plans read as many from each stage
  if (stages.count() == 1) return own;
  return stages.ranks->gather(name, std::span<const T>(own)).back();
}

// Some tokens of a pass: each context rank of the model has some of them. Model and cut must outlive it.
class DividedTokens {
 public:
  // `tokens`: their places in the pass.
  DividedTokens(const layers::Decoder& model, const layers::TokenCut& cut, std::span<const int32_t> tokens);

  int64_t count() const { return std::ssize(tokens_); }
  // Which of them a rank has.
  std::vector<size_t> index_of(int rank) const { return cut_.chosen(tokens_, rank).index; }
  // Which of them are here, and where among the tokens of the pass that are here.
  const std::vector<size_t>& index() const { return own_.index; }
  const std::vector<int32_t>& positions() const { return own_.position; }
  // A number for each of them, on all ranks, from those of the rank's own. All ranks call it.
  std::vector<float> gather(std::span<const float> own) const;
  // Of values for each of them the rank's own.
  template <class T>
  std::vector<T> own_of(std::span<const T> all) const {
    std::vector<T> own;
    for (const size_t i : own_.index) own.push_back(all[i]);
    return own;
  }

 private:
  const layers::Decoder& model_;
  const layers::TokenCut& cut_;
  std::vector<int32_t> tokens_;
  layers::TokenCut::Chosen own_;
};

}  // namespace temper::training
