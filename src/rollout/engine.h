#pragma once
#include <optional>
#include <vector>

#include "device/memory_turn.h"
#include "rollout/passes/decoding_ahead.h"
#include "rollout/passes/mixed_pass.h"

namespace temper::rollout {

struct EngineOptions {
  int64_t cache_tokens = 1 << 16;  // that pages have room for, of all requests and of what may be found again
  int64_t page_tokens = 16;
  int64_t max_running = 64;    // requests at once
  int64_t chunk_tokens = 512;  // of prompts in one pass, in addition to the tokens of requests that decode
  bool prefix_cache = true;    // pages of equal beginnings are computed once
  bool cache_grows = false;    // before a request that needs more, where no other is there
  // A prompt that begins as an earlier prompt and its answer continues them at their last token. Its bits may
  // depend on which parts were prompts and which answers.
  bool continues_answers = false;
  EngineObserver* observer = nullptr;
};

// Of an engine that answers one request after the other, as in a conversation.
EngineOptions options_of_conversation();

// Answers any number of requests with one model: those that decode get one token in each pass, and the
// same passes compute prompts in parts (continuous batching). Keys and values lie in pages; a request takes a
// page when it comes to it. Where none is left, the request that came last gives all of its back and is
// computed again later: its tokens stay, and what they left behind gets the same bits again. Pages of equal
// beginnings, by equal weights, are shared.
//
// With batch-invariant kernels, a request's answer has the same bits whatever other requests there are,
// whatever the sizes of pages and parts, preempted or not, found in the cache or not. Where a mixer leaves
// other bits behind when it decodes (BoundMixer::decodes_as_prompts), tokens that were sampled are computed
// again one by one, and only pages of prompts are shared.
//
// The decoder must outlive it. When the weights change between two steps, requests that are running continue
// with the new ones, which compute all of their tokens again.
class Engine {
 public:
  // An Error names what does not fit; `tokenizer` is for texts and stop strings.
  Engine(const layers::Decoder& model, const EngineOptions& options,
         const tokenizers::Tokenizer* tokenizer = nullptr);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Takes a request in; its number. An Error where it can never be answered: an empty prompt, one as long as
  // the context, more tokens than the cache has room for.
  int64_t add(Request request);
  // One pass of the model; false when nothing is left to do.
  bool step();
  struct NewToken {
    int64_t id;  // of the request
    int32_t token;
    std::string text;  // that became certain with it; with a tokenizer (AnswerText::push)
  };
  // What the last step sampled, the last token of an answer, too.
  const std::vector<NewToken>& new_tokens() const { return new_tokens_; }
  // Ends a request between two steps: it finishes with the tokens that it has. False where it has finished
  // before.
  bool cancel(int64_t id);
  // After a step() that threw: all requests are given up, and what was computed for them is found no more.
  void give_up();
  std::vector<Completion> take_finished();  // since the last call, in the order in which they finished

  // Between requests: others have the memory of its cache and of what captured passes write, at whose
  // addresses they find it again; what is in it is lost, and equal beginnings are computed again. Passes with
  // sums over tensor ranks are captured again. Requests are refused meanwhile. So are those of all engines on
  // the device, whose memory is of the same regions.
  void sleep();
  void wake();  // an Error (kResources) where there is no memory for it

  int64_t waiting() const { return schedule_.waiting(); }
  int64_t running() const { return schedule_.running(); }
  struct Counts {
    int64_t sampled = 0;         // tokens
    int64_t computed = 0;        // tokens of passes, prompts among them
    int64_t found = 0;           // tokens of prompts that were in the cache
    int64_t preemptions = 0;     // for want of pages
    int64_t recomputations = 0;  // of running requests, because weights changed
  };
  Counts counts() const;

 private:
  void take(const SampledToken& sampled);
  void finish(Sequence& sequence);
  void make_room_for(const Request& request);

  const layers::Decoder& model_;
  const tokenizers::Tokenizer* tokenizer_;
  std::optional<MemoryTurn> turn_;  // of others, while it sleeps; ends when what sleeps is gone
  SequenceCache cache_;
  const bool cache_grows_;
  Schedule schedule_;
  MixedPass mixed_;
  std::optional<DecodingAhead> ahead_;  // where passes are captured
  std::vector<NewToken> new_tokens_;
  std::vector<Completion> finished_;
  int64_t next_id_ = 0, sampled_ = 0;
};

}  // namespace temper::rollout
