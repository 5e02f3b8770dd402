#pragma once
#include <optional>
#include <string>
#include <vector>

#include "data/sources/mixture.h"
#include "data/sources/order.h"
#include "recipes/keys/run_config.h"

namespace temper::recipes {

// A row that asks for answers.
struct Prompt {
  int64_t row = 0;           // of the mixture
  std::vector<int32_t> ids;  // at least one
  Json json;                 // as the file has it
  Json messages;             // of a conversation, without an answer; else null
  std::string place;         // "file:LINE"
  std::string question;      // for people: the last message, or the prompt
  bool is_lossy = false;     // the row says something that the prompt does not (data/chat/losses.h)
};

// The prompt of a row; nothing where the row cannot be asked and data.on_bad_row or, of prompts that leave
// too few tokens for an answer of `most_new`, data.overflow says that it is left out. Otherwise an Error
// names it.
std::optional<Prompt> prompt_of(const data::Mixture& rows, int64_t row, const RunConfig& config,
                                int64_t most_new);

// The prompts of a run, in the order of training without end. All ranks see the same ones. Rows that cannot
// be asked stop the run, or are left out where data.on_bad_row (or, of long ones, data.overflow) says so.
class Prompts {
 public:
  // The mixture and the configuration must outlive it.
  Prompts(const data::Mixture& rows, const RunConfig& config, int64_t most_new);

  Prompt next();
  Json state() const;
  void restore(const Json& state);
  double progress() const { return order_.progress(order_.place()); }  // in epochs
  int64_t asked() const { return asked_; }
  int64_t left_out() const { return left_out_; }
  int64_t lossy() const { return lossy_; }  // of those that were asked

 private:
  const data::Mixture& rows_;
  const RunConfig& config_;
  const int64_t most_new_;
  data::RowOrder order_;
  int64_t asked_ = 0, left_out_ = 0, lossy_ = 0;
};

}  // namespace temper::recipes
