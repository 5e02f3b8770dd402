#pragma once
#include <optional>

#include "rollout/passes/decoding_passes.h"
#include "rollout/passes/sampled_token.h"
#include "rollout/scheduling/schedule.h"

namespace temper::rollout {

// Decodes with captured passes, and starts each before the host has read what the one before it chose: the
// device never waits for the host. What a pass computes for a request that turns out to be finished is
// ignored.
class DecodingAhead {
 public:
  // The model, the cache and the schedule must outlive it.
  DecodingAhead(const layers::Decoder& model, SequenceCache& cache, Schedule& schedule, int64_t max_running);

  // Whether such a pass computes all of this: one token of each request, where the host need not look at
  // anything before the pass is complete, and one graph serves all of the requests.
  static bool can_compute(const std::vector<ScheduledPart>& parts);
  void start(const std::vector<ScheduledPart>& parts);
  // Whether a pass has been started whose tokens are not read yet.
  bool is_under_way() const { return under_way_.has_value(); }
  // The tokens of that pass; where its sequences may continue without more, their next pass is started
  // before.
  std::vector<SampledToken> read();
  // A request has ended: the pass under way has no token for it.
  void drop(Sequence& sequence);
  void drop_all() { under_way_.reset(); }
  void forget_passes() { passes_.forget(); }
  int64_t computed() const { return computed_; }  // tokens

 private:
  // A pass that was started, and the sequences of its rows; null: of no request.
  struct Started {
    DecodingPass* pass;
    std::vector<Sequence*> rows;
    DecodingPass::Chosen chosen;
  };
  Started run(DecodingPass& pass, std::vector<Sequence*> rows, std::span<const int32_t> ids);
  std::optional<Started> start_next(const Started& before);
  std::optional<std::vector<Sequence*>> rows_after(const Started& before) const;
  bool ends_with_next_token(const Sequence& sequence) const;

  const layers::Decoder& model_;
  SequenceCache& cache_;
  Schedule& schedule_;
  DecodingPasses passes_;
  std::optional<Started> under_way_;
  int64_t computed_ = 0;
};

}  // namespace temper::rollout
