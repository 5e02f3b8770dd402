#pragma once
#include <string>
#include <vector>

#include "recipes/grpo/answers/journal.h"

namespace temper::recipes {

// The answers of a run in its files (Journal), each with a hash of all that it depends on: the settings, the
// prompt, and the number of the rollout, which represents the weights that the run has come to. A run that
// resumes takes over the answers of the rollout that it was in.
class AnswerRecord {
 public:
  // `settings`: a text of what every answer of the run depends on. `rank` is one of the `ranks` that ask
  // different prompts. Of those that ask the same ones, the first `leads`: it alone reads and writes files.
  AnswerRecord(const std::string& folder, int rank, int ranks, bool leads, std::string settings)
      : journal_(folder, rank, ranks), leads_(leads), settings_(std::move(settings)) {}

  // Continues with this rollout (Journal::begin_at). `takes_over`: take() finds answers that are there
  // already.
  void open(int64_t rollout, bool takes_over);
  bool is_open() const { return is_open_; }
  // The next rollout opens it again, as when the program starts.
  void close() { is_open_ = false; }
  bool takes_over() const { return takes_over_; }

  // Whether the rollout's answer is there; it is appended to `samples`.
  bool take(int64_t rollout, const Prompt& prompt, int64_t group, int64_t number,
            std::vector<SampledAnswer>& samples);
  void write(const SampledAnswer& sample, const Prompt& prompt, const std::vector<std::string>& reward_names);
  void write_scores(const Json& scores) { journal_.write_scores(scores); }  // scores_to_json()
  // The rollout is over: all is on the disk, and nothing more is taken over.
  void end_rollout();

 private:
  std::string key_of(int64_t rollout, const Prompt& prompt) const;

  Journal journal_;
  bool leads_;
  std::string settings_;
  bool is_open_ = false, takes_over_ = false;
};

}  // namespace temper::recipes
