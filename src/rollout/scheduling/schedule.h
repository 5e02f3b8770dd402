#pragma once
#include <deque>
#include <list>
#include <memory>
#include <vector>

#include "rollout/scheduling/sequence_cache.h"

namespace temper::rollout {

// What one sequence gets in a pass.
struct ScheduledPart {
  Sequence* sequence;
  int64_t tokens;
  bool decodes;  // one token by the mixers' form for decoding (layers::PagedBatch)
};

// Which requests run, and what each gets in the next pass. Requests start in the order in which they came;
// one whose prompt begins like a prompt that is being computed waits until it can take over those pages.
// Where no page is left, the request that started last waits again and is computed again later.
class Schedule {
 public:
  // At most `max_running` requests at once, and `chunk_tokens` of prompts in one pass.
  Schedule(SequenceCache& cache, int64_t max_running, int64_t chunk_tokens);

  void add(std::unique_ptr<Sequence> sequence);
  // The parts of the next pass, whose pages they have: sequences that decode, by slot; then parts of prompts.
  // Empty only where no request is left. Sequences whose states are of other weights than the current ones
  // (of the model: `model_version`) are computed again.
  std::vector<ScheduledPart> next(uint64_t model_version);
  // Pages for this many tokens after those that are computed, which are taken from requests that started
  // later where none is left; false where the sequence itself was the last.
  bool make_room(Sequence& sequence, int64_t tokens);
  // Ends a request, whose pages and slot are free again.
  void remove(Sequence& sequence);
  void remove_all();
  Sequence* find(int64_t id) const;  // of a request that runs or waits; null: there is none

  int64_t waiting() const { return std::ssize(waiting_); }
  int64_t running() const { return std::ssize(running_); }
  bool starts_more() const { return waiting() > 0 && running() < max_running_; }
  struct Counts {
    int64_t found = 0;           // tokens that were in the prefix cache
    int64_t preemptions = 0;     // of requests, for want of pages
    int64_t recomputations = 0;  // of running requests, because weights changed
  };
  const Counts& counts() const { return counts_; }

 private:
  using Running = std::list<std::unique_ptr<Sequence>>;
  void follow_weights(uint64_t model_version);
  void start_waiting(uint64_t model_version);
  bool start(Sequence& sequence, const WeightVersions& versions);
  bool shares_unfinished(const Sequence& sequence, const WeightVersions& versions) const;
  void set_back(Sequence& sequence);
  Running::iterator place_of(const Sequence& sequence);

  SequenceCache& cache_;
  const int64_t max_running_, chunk_tokens_;
  std::deque<std::unique_ptr<Sequence>> waiting_;
  Running running_;  // in the order in which they started
  Counts counts_;
};

}  // namespace temper::rollout
