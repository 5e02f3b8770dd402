#pragma once
#include <cstdint>

#include "layers/decoder.h"
#include "recipes/keys/run_config.h"

namespace temper::recipes {

// What a learner's disk use depends on besides its configuration.
struct LearnerSizes {
  int64_t steps = 0;        // of the whole run
  int64_t documents = 0;    // of training and evaluation
  int64_t extra_bytes = 0;  // that a result gets from the model's folder: the tokenizer
  int64_t ranks = 1;        // that write a file of each state
};

// Bytes of one training state, a critic's among them, and of everything that a learner (a model, or the one
// adapter of `config`) keeps on disk at once at most, with what is complete before it takes the place of
// something else.
int64_t state_bytes(const RunConfig& config, const layers::DecoderConfig& model);
int64_t plan_disk(const RunConfig& config, const layers::DecoderConfig& model, const LearnerSizes& sizes);

}  // namespace temper::recipes
