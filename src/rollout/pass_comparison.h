#pragma once
#include <set>
#include <string>
#include <vector>

#include "rollout/engine.h"

namespace temper::rollout {

// A text whose answer is given.
struct GivenText {
  std::vector<int32_t> prompt, answer;
  const layers::Adapter* adapter = nullptr;  // null: the model alone
};

// The likeliest answers of the model with this adapter, of up to `new_tokens` tokens. An Error names a
// prompt's number where it cannot be answered.
std::vector<GivenText> likeliest_answers(const layers::Decoder& model,
                                         const std::vector<std::vector<int32_t>>& prompts, int64_t new_tokens,
                                         const layers::Adapter* adapter = nullptr);

// What passes of the engine computed differently from a pass over the whole text as training does it.
struct PassDifference {
  // |difference| of log-probabilities, over the whole vocabulary, of all tokens of the answers.
  double largest = 0, mean = 0;
  size_t largest_text = 0;       // where the largest is: the text's number,
  int64_t largest_position = 0;  // and the position of the token whose log-probabilities these are
  int64_t tokens = 0, different_tokens = 0;  // compared, and those with a difference
  // The first module whose results differ by a bit: "embedding", "layer 3, mixer", "layer 3, channel", "final
  // norm", "head"; empty where none does. `first_layer` is -1 where it is none.
  std::string first_module = {};
  int64_t first_layer = -1;
  // The first op whose results differ, as rollouts name it ("paged_attention"), and the parameter that it
  // read ("layers.3.attention.qkv"), or else the module that it is in ("layers.3.attention"). Empty where no
  // op that can be compared differs: then the difference arises between ops.
  std::string first_op = {}, first_op_place = {};
  // Ops of rollouts whose results have no counterpart in training of the same shape.
  std::vector<std::string> not_compared = {};
  double first_largest = 0;  // the largest |difference| behind it, of the stream, or of logits
  int64_t found = 0;         // tokens that were in the prefix cache

  bool none() const { return first_module.empty() && first_op.empty() && largest == 0; }
  std::string describe_first_module() const;  // "-" where none differs
  std::string describe_first_op() const;      // "linear, layers.0.mlp.down"; "-" where none differs
};

// What it means, with `batch` answers at once, in one line: "exactly 0" only where no result of any op
// differs.
std::string verdict_of(const PassDifference& found, int64_t batch);

// Compares the engine with training on the same texts by the same weights: prompts in parts, then one token
// of each answer after the other, whatever the engine would have chosen. The model and the adapters of the
// texts must outlive it.
class PassComparison {
 public:
  PassComparison(const layers::Decoder& model, std::vector<GivenText> texts);
  ~PassComparison();

  // `batch` answers at once; texts repeat where there are fewer. `warm`: with a prefix cache, once without
  // and once with the texts in it.
  PassDifference compare(int64_t batch, bool warm) const;
  // The time of a pass in which `batch` answers get one token each: the median. 0: no pass was one.
  double seconds_per_pass(int64_t batch) const;

 private:
  class Watcher;
  struct Expected;
  Expected expected_of(const GivenText& text) const;
  EngineOptions options_of(int64_t batch, bool warm) const;
  std::string module_of(size_t stage) const;

  const layers::Decoder& model_;
  std::vector<GivenText> texts_;
  std::set<const layers::Adapter*> adapters_;  // of the texts
  std::vector<Expected> expected_;
};

}  // namespace temper::rollout
