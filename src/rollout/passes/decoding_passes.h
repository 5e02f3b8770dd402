#pragma once
#include <map>

#include "rollout/passes/decoding_pass.h"

namespace temper::rollout {

// The captured passes of an engine, by their shapes. They run one after the other, in one arena and with one
// tensor of ids, so that each may continue what any of them chose.
class DecodingPasses {
 public:
  // For up to `max_rows` sequences. Rows without a sequence write to the spare page and slot. The model and
  // the states must outlive it.
  DecodingPasses(const layers::Decoder& model, const layers::PagedStates& states, int64_t max_rows,
                 int32_t spare_page, int32_t spare_slot);

  // A pass for this many sequences or some more, each with up to `pages` pages or some more. It stays there
  // until forget().
  DecodingPass& at(int64_t rows, size_t pages, const layers::Adapter* adapter, double log_prob_temperature);
  // Destroys all of them and their memory; passes are captured again when they are needed.
  void forget();
  int64_t size() const { return std::ssize(passes_); }

 private:
  const layers::Decoder& model_;
  const layers::PagedStates& states_;
  const int64_t max_rows_;
  const int32_t spare_page_, spare_slot_;
  std::shared_ptr<Arena> arena_;  // null: no pass is there
  Tensor ids_, seen_;             // of DecodingSetup: [rows] int32, [rows, vocab] uint8
  std::map<DecodingPass::Shape, std::unique_ptr<DecodingPass>> passes_;
};

}  // namespace temper::rollout
