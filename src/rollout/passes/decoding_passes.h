#pragma once
#include <map>

#include "rollout/passes/decoding_pass.h"
#include "rollout/scheduling/sequence_cache.h"

namespace temper::rollout {

// The captured passes of an engine, by their shapes. They run one after the other, in one arena and with one
// tensor of ids, so that each may continue what any of them chose.
class DecodingPasses {
 public:
  // For up to `max_rows` sequences. Rows without a sequence write to the cache's spare page and slot. The
  // model and the cache must outlive it.
  DecodingPasses(const layers::Decoder& model, const SequenceCache& cache, int64_t max_rows);

  // A pass for this many sequences or some more, each with up to `pages` pages or some more. It stays there
  // until forget().
  DecodingPass& at(int64_t rows, size_t pages, const layers::Adapter* adapter, double log_prob_temperature);
  // Destroys all of them and their memory; passes are captured again when they are needed.
  void forget();
  int64_t size() const { return std::ssize(passes_); }

 private:
  const layers::Decoder& model_;
  const SequenceCache& cache_;
  const int64_t max_rows_;
  std::shared_ptr<Arena> arena_;  // null: no pass is there
  Tensor ids_, seen_;             // of DecodingSetup: [rows] int32, [rows, vocab] uint8
  std::map<DecodingPass::Shape, std::unique_ptr<DecodingPass>> passes_;
};

}  // namespace temper::rollout
