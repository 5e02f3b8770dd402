#pragma once
#include "layers/decoder.h"
#include "layers/decoder_input.h"
#include "rollout/scheduling/schedule.h"

namespace temper::rollout {

// What a model's pass over these parts reads: their tokens one part after the other, with the pages and slots
// of their sequences. Routers are recorded where a request asks for it.
layers::BatchInput batch_input_of(const std::vector<ScheduledPart>& parts);

// Appends to the results of requests that record experts what the routers of a pass over these parts chose.
// Before the parts count as computed.
void record_experts(const std::vector<ScheduledPart>& parts, const layers::RouterTrace& trace);

}  // namespace temper::rollout
