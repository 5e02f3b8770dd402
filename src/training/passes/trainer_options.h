#pragma once
#include <cstddef>
#include <cstdint>

#include "autograd/tape.h"
#include "parallel/pipeline/schedule.h"
#include "training/passes/checkpointing.h"
#include "training/passes/cuda_graph.h"

namespace temper::training {

// What training does with the routers of mixtures.
struct RouterOptions {
  double balance_factor = 0;    // of the load balancing loss; 0: there is none
  bool global_balance = false;  // its loads are those of the whole update, else of each micro-batch
  // After each update the correction bias of an expert that got more tokens than the mean goes down by this,
  // of one that got fewer up (Wang et al., "Auxiliary-Loss-Free Load Balancing Strategy for Mixture-of-
  // Experts", 2024); 0: biases stay.
  double bias_rate = 0;
};

struct TrainerOptions {
  double max_grad_norm = 1;        // 0: no clipping
  int64_t micro_batch_tokens = 0;  // most tokens of one pass (at least one row); 0: all at once
  Checkpointing checkpointing = Checkpointing::kNone;
  double z_loss = 0;  // factor of the square of log Σ exp(logits); ops/cross_entropy
  CudaGraph cuda_graph = CudaGraph::kAuto;
  size_t num_sources = 1;  // above 1: losses are reported for each source of the data, too
  RouterOptions routers = {};
  bool keep_states = false;  // of recurrent ops, for backward (TapeOptions)
  parallel::ScheduleKind pipeline = parallel::ScheduleKind::k1F1B;  // of the passes of several stages
};

inline TapeOptions tape_options(const TrainerOptions& options) {
  return {.rematerialize = options.checkpointing == Checkpointing::kSelective,
          .keep_states = options.keep_states};
}

}  // namespace temper::training
