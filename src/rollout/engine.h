#pragma once
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>

#include "device/memory_turn.h"
#include "layers/decoder.h"
#include "ops/sample/sample.h"
#include "rollout/decoding_pass.h"
#include "rollout/engine_observer.h"
#include "rollout/page_pool.h"
#include "rollout/request.h"
#include "tokenizers/tokenizer.h"

namespace temper::rollout {

struct EngineOptions {
  int64_t cache_tokens = 1 << 16;  // that pages have room for, of all requests and of what may be found again
  int64_t page_tokens = 16;
  int64_t max_running = 64;    // requests at once
  int64_t chunk_tokens = 512;  // of prompts in one pass, beside the tokens of requests that decode
  bool prefix_cache = true;    // pages of equal beginnings are computed once
  EngineObserver* observer = nullptr;
};

// Answers any number of requests with one model: those that decode get one token in each pass, and beside
// them prompts are computed in parts (continuous batching). Keys and values lie in pages; a request takes a
// page when it comes to it. Where none is left, the request that came last gives all of its back and is
// computed again later: its tokens stay, and what they left behind gets the same bits again. Pages of equal
// beginnings, by equal weights, are shared.
//
// With batch-invariant kernels, a request's answer has the same bits whatever is beside it, whatever the
// sizes of pages and parts, preempted or not, found in the cache or not. Where a mixer leaves other bits
// behind when it decodes (BoundMixer::decodes_as_prompts), tokens that were sampled are computed again one by
// one, and only pages of prompts are shared.
//
// The decoder must outlive it. When the weights change between two steps, requests that are running continue
// with the new ones, which compute all of their tokens again.
class Engine {
 public:
  // An Error names what does not fit; `tokenizer` is for texts and stop strings.
  Engine(const layers::Decoder& model, const EngineOptions& options,
         const tokenizers::Tokenizer* tokenizer = nullptr);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Takes a request in; its number. An Error where it can never be answered: an empty prompt, one as long as
  // the context, more tokens than the cache has room for.
  int64_t add(Request request);
  // One pass of the model; false when nothing is left to do.
  bool step();
  std::vector<Completion> take_finished();  // since the last call, in the order in which they finished

  // Between requests: others have the memory of its cache and of what captured passes write, at whose
  // addresses they find it again; what is in it is lost, and equal beginnings are computed again. Passes with
  // sums over tensor ranks are captured anew. Requests are refused meanwhile. So are those of all engines on
  // the device, whose memory is of the same regions.
  void sleep();
  void wake();  // an Error (kResources) where there is no memory for it

  int64_t waiting() const { return std::ssize(waiting_); }
  int64_t running() const { return std::ssize(running_); }
  struct Counts {
    int64_t sampled = 0;         // tokens
    int64_t computed = 0;        // tokens of passes, prompts among them
    int64_t found = 0;           // tokens of prompts that were in the cache
    int64_t preemptions = 0;     // for want of pages
    int64_t recomputations = 0;  // of running requests, because weights changed
  };
  const Counts& counts() const { return counts_; }

 private:
  struct Sequence;
  using Sequences = std::list<std::unique_ptr<Sequence>>;
  // What one sequence gets in a pass.
  struct Part {
    Sequence* sequence;
    int64_t tokens;
    bool decodes;
  };

  // engine.cpp
  void free_all_slots();
  void compute(const std::vector<Part>& parts);
  layers::BatchInput input_of(const std::vector<Part>& parts) const;
  void sample(const std::vector<Part>& parts, const Tensor& hidden);
  Tensor seen_by(const std::vector<Sequence*>& sequences) const;
  static Tensor forced(const Tensor& ids, const std::vector<Sequence*>& sequences);
  std::vector<float> log_probs_of(Tape& tape, const Var& logits, const Tensor& ids,
                                  const std::vector<Sequence*>& sequences) const;
  void record_experts(const std::vector<Part>& parts, const layers::RouterTrace& trace) const;
  struct Token {
    int32_t id;
    float log_prob, kept;
  };
  bool take(Sequence& sequence, const Token& token);  // false where the request is finished
  void finish(Sequence& sequence, Finish reason);

  // flights.cpp
  // A captured pass that the device was asked for, and whose its rows are; null: of nobody, any more.
  struct Flight {
    DecodingPass* pass;
    std::vector<Sequence*> rows;
    DecodingPass::Chosen chosen;
  };
  bool is_plain_decoding(const std::vector<Part>& parts) const;
  void forget_passes();
  DecodingPass& pass_for(int64_t rows, size_t pages, const Request& request);
  void take_off(const std::vector<Part>& parts);
  std::optional<Flight> follow(const Flight& flight);
  void land();
  Flight fly(DecodingPass& pass, std::vector<Sequence*> rows, std::span<const int32_t> ids);

  // schedule.cpp
  void follow_weights();
  void admit();
  bool begin(Sequence& sequence);
  bool shares_unfinished(const Sequence& sequence) const;
  std::vector<Part> plan();
  int64_t part_of_prompt(const Sequence& sequence, int64_t most) const;
  bool make_room(Sequence& sequence, int64_t tokens);
  void preempt(Sequence& sequence);
  void set_back(Sequence& sequence);
  void release(Sequence& sequence);

  // prefixes.cpp
  PagePool::Key key_of(const Sequence& sequence, int64_t page) const;
  int64_t find_prefix(Sequence& sequence);
  void publish(Sequence& sequence);
  int64_t last_boundary(const Sequence& sequence) const;
  void keep_slot(const Sequence& sequence);
  void forget_slots();

  const layers::Decoder& model_;
  const EngineOptions options_;
  const tokenizers::Tokenizer* tokenizer_;
  const bool captures_;             // passes in which all sequences get one token
  std::optional<MemoryTurn> turn_;  // of others, while it sleeps; ends when what sleeps is gone
  layers::PagedStates states_;
  const bool has_slots_;
  // Whether tokens that were sampled may be computed again in parts, as prompts are; states in slots are kept
  // of few places, and move on one by one.
  const bool decodes_as_prompts_;
  PagePool pool_;
  std::vector<int32_t> free_slots_;
  // Of states at the end of a page, by its serial; the oldest first.
  std::list<std::pair<uint64_t, int32_t>> kept_slots_;
  ops::Bound<ops::Sample> sample_;
  ops::Bound<ops::TokenLogProbs> log_probs_;
  uint64_t model_version_;
  std::deque<std::unique_ptr<Sequence>> waiting_;
  Sequences running_;  // in the order in which they were let in
  std::vector<Completion> finished_;
  int64_t next_id_ = 0;
  Counts counts_;
  // Captured passes, and what they share.
  std::shared_ptr<Arena> arena_;
  Tensor next_ids_, seen_;
  std::map<DecodingPass::Shape, std::unique_ptr<DecodingPass>> passes_;
  std::optional<Flight> flight_;  // its tokens are still to be read
};

}  // namespace temper::rollout
