#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace temper::parallel {

// Pipeline parallelism: the layers of a model are cut into parts, one after the other. Rank r of `stages`
// ranks has `chunks` of them: part c · stages + r is its chunk c. So the activations of a micro-batch pass
// all ranks in their order, once for each chunk.
struct PipelineShape {
  int stages = 1, chunks = 1, micro_batches = 1;
  // Before this part nothing is trained: no gradient is sent to it, and those before it have no backward
  // passes.
  int first_trained = 0;

  int parts() const { return stages * chunks; }
  int part(int rank, int chunk) const { return chunk * stages + rank; }
  int rank_of(int part) const { return part % stages; }
  int chunk_of(int part) const { return part / stages; }
  bool is_trained(int part) const { return part >= first_trained; }  // or needs gradients for what is
};

enum class Act {
  kForward,
  kBackward,        // of inputs and weights
  kBackwardInput,   // the gradient of the part's input alone
  kBackwardWeight,  // the gradients of its weights, later
  kSendActivation,  // to the part behind this one
  kReceiveActivation,
  kSendGradient,  // to the part before this one
  kReceiveGradient
};
constexpr bool is_transfer(Act act) { return act >= Act::kSendActivation; }
constexpr bool is_send(Act act) { return act == Act::kSendActivation || act == Act::kSendGradient; }

constexpr int kFrozenAhead = 2;

// How long the passes of one part take over one micro-batch, each more than nothing, in one unit for all
// parts: seconds, or floating-point operations where all ranks are equally fast.
struct PartCosts {
  double forward = 1, backward_input = 1, backward_weight = 1;

  double of(Act act) const;  // of a transfer: 0
};

// One thing that a rank does, with its own chunk: what is received is the chunk's input, or the gradient of
// its output.
struct Action {
  Act act = Act::kForward;
  int micro_batch = 0, chunk = 0;

  bool operator==(const Action&) const = default;
};
std::string to_string(const Action& action);  // "forward of micro-batch 3, chunk 0"

enum class ScheduleKind { k1F1B, kInterleaved, kZbH1 };
std::string_view to_string(ScheduleKind kind);  // "1f1b", "interleaved", "zb_h1"
// Where nothing else is asked for.
constexpr ScheduleKind usual_kind(int64_t chunks) {
  return chunks > 1 ? ScheduleKind::kInterleaved : ScheduleKind::k1F1B;
}

// What each rank does in one update, in order. Sends may wait until the other rank receives: no rank then
// waits for one that waits for it. Transfers that stand next to each other in a rank's list may also progress
// together (collectives::Pairs::exchange).
struct Schedule {
  ScheduleKind kind = ScheduleKind::k1F1B;
  PipelineShape shape;
  std::vector<std::vector<Action>> ranks;
  // By rank: of how many forward passes it keeps activations at a time, until the gradients of their weights
  // are there.
  std::vector<int> most_activations;
};

// 1f1b: each rank computes a backward pass as soon as it may (Narayanan et al., "Memory-Efficient
//   Pipeline-Parallel DNN Training", 2021). Activations: of at most stages - rank micro-batches.
// interleaved: the same with several chunks a rank, which divides the idle time by their number and needs
//   more activations (Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using
//   Megatron-LM", 2021). Micro-batches pass a chunk in groups of at least `stages`; where their number is no
//   multiple, groups are larger by one or more. Idle as published where a backward pass takes once or
//   twice as long as a forward pass and transfers overlap with computation; at other ratios a transfer may
//   wait for another one, and sends that wait cost more with every micro-batch.
// zb_h1: the gradients of weights are computed where a rank would wait (Qi et al., "Zero Bubble Pipeline
//   Parallelism", 2024, ZB-H1). Rank r computes those of a micro-batch r micro-batches later, so that every
//   rank has the activations of at most `stages` micro-batches, as many as rank 0 has with 1f1b.
//
// Parts before which nothing is trained have forward passes alone, keep nothing of them, and are at most
// kFrozenAhead micro-batches ahead of the next part.
//
// `costs`: of a part. They decide when tensors travel (transfers.h), not the order of the passes.
//
// An Error where a number is below 1, where the first trained part is none of the parts, or where a schedule
// of one chunk is to have several.
Schedule make_schedule(ScheduleKind kind, const PipelineShape& shape, const PartCosts& costs = {});

}  // namespace temper::parallel
