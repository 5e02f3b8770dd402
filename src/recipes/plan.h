#pragma once
#include <array>
#include <string>

#include "device/facts.h"
#include "device/memory.h"
#include "layers/decoder_config.h"
#include "recipes/run_config.h"

namespace temper::recipes {

using MemoryPlan = std::array<int64_t, kNumMemoryTags>;

// Bytes that a run will hold on its device at its peak, by region; activations and workspace are estimates
// for the largest micro-batch. Gradients are what they need beside activations.
MemoryPlan plan_memory(const RunConfig& config, const layers::DecoderConfig& model,
                       const HardwareFacts& facts);

// Bytes of one training state, and of everything that the run will keep on disk at once.
int64_t state_bytes(const RunConfig& config, const layers::DecoderConfig& model);
int64_t plan_disk(const RunConfig& config, const layers::DecoderConfig& model);

// The keys to change so that the plan fits into `limit` bytes, those that cost the least speed, with what is
// needed then; empty when nothing helps.
std::string what_would_fit(const RunConfig& config, const layers::DecoderConfig& model,
                           const HardwareFacts& facts, int64_t limit);

// Refuses a run whose weights, gradients and moments cannot fit; warns when its activations probably will
// not. Both say what would fit.
void check_memory(const RunConfig& config, const layers::DecoderConfig& model, const HardwareFacts& facts,
                  int64_t limit);

}  // namespace temper::recipes
