#pragma once
#include "layers/decoder.h"
#include "recipes/plans/layout_cost.h"
#include "recipes/plans/update_size.h"

namespace temper::recipes {

// What an update takes at least, and about, without a rehearsal.
struct LayoutBound {
  double seconds = 0;   // the passes of one rank that has the whole model, divided evenly, what tensor ranks
                        // send around layers, and the time in which the stages of a pipeline wait
  double expected = 0;  // seconds; also the parameters that are summed, sent and gathered between ranks with
                        // rows or tokens of their own. Not a bound: it only says what to rehearse first.
  int64_t memory = 0;   // weights, gradients and states, evenly divided between the ranks that divide them
};

// One rank with the whole model is rehearsed: where ranks divide a layer or a row, its ops are smaller, and
// no faster for their work.
class LayoutBounds {
 public:
  LayoutBounds(const RunConfig& config, const Setting& setting, const PlannedMachine& machine);

  LayoutBound of(const RunLayout& layout) const;
  const UpdateSize& update() const { return update_; }
  double elements() const { return elements_; }  // of the model

 private:
  double seconds_of_tensor_ranks(const RunLayout& layout) const;
  double seconds_of_parameters(const RunLayout& layout, int64_t passes) const;
  double bytes_of_state(const RunLayout& layout) const;

  const RunConfig& config_;
  const Setting& setting_;
  const PlannedMachine& machine_;
  const layers::DecoderConfig model_;
  const UpdateSize update_;
  double elements_ = 0;
  double passes_ = 0;  // seconds of an update's passes by one rank
};

}  // namespace temper::recipes
