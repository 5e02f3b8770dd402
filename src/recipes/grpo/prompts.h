#pragma once
#include <optional>
#include <string>
#include <vector>

#include "data/mixture.h"
#include "data/order.h"
#include "recipes/run_config.h"

namespace temper::recipes {

// A row that asks for answers.
struct Prompt {
  int64_t row = 0;           // of the mixture
  std::vector<int32_t> ids;  // at least one
  Json json;                 // as the file has it
  Json messages;             // of a conversation, without an answer; else null
  std::string place;         // "file:LINE"
  std::string question;      // for people: the last message, or the prompt
};

// Errors name the row: no prompt, or too few tokens left of `most_tokens` for an answer of `most_new`.
Prompt read_prompt(const data::Mixture& rows, int64_t row, int64_t most_tokens, int64_t most_new);

// The prompts of a run, in the order of training without end. All ranks see the same ones. Rows that cannot
// be asked stop the run, or are left out where data.on_bad_row (or, of long ones, data.overflow) says so.
class Prompts {
 public:
  // The mixture must outlive it.
  Prompts(const data::Mixture& rows, const RunConfig& config, int64_t most_new);

  Prompt next();
  Json state() const { return order_.place().to_json(); }
  void restore(const Json& state) { order_.restore(data::RowOrder::Place::from_json(state)); }
  double progress() const { return order_.progress(order_.place()); }  // in epochs
  int64_t asked() const { return asked_; }
  int64_t left_out() const { return left_out_; }

 private:
  const data::Mixture& rows_;
  data::OnBadRow on_bad_row_;
  bool drops_long_;
  int64_t most_tokens_, most_new_;
  data::RowOrder order_;
  int64_t asked_ = 0, left_out_ = 0;
};

}  // namespace temper::recipes
