#pragma once
#include <array>

#include "device/memory.h"
#include "layers/decoder_config.h"
#include "recipes/run_config.h"

namespace temper::recipes {

using MemoryPlan = std::array<int64_t, kNumMemoryTags>;

// Bytes that a run will hold at its peak, by region; activations are an estimate for the largest micro-batch.
MemoryPlan plan_memory(const RunConfig& config, const layers::DecoderConfig& model);

// Bytes of one training state, and of everything that the run will keep on disk at once.
int64_t state_bytes(const layers::DecoderConfig& model);
int64_t plan_disk(const RunConfig& config, const layers::DecoderConfig& model);

// Refuses a run whose weights, gradients and moments cannot fit; warns when its activations probably will
// not.
void check_memory(const MemoryPlan& plan, int64_t limit);

}  // namespace temper::recipes
