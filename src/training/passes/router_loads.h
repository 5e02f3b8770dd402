#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collectives/group.h"
#include "device/transfer.h"
#include "layers/decoder.h"

namespace temper::training {

// How one router spread the tokens of a step over its experts; of all ranks.
struct RouterLoad {
  size_t layer = 0;
  std::vector<int64_t> counts;  // by expert: how often it was chosen
  double entropy = 0;           // of a token's scores, mean, in nats
  int64_t tokens = 0;
  int64_t not_finite = 0;  // tokens whose logits were no numbers

  double largest_over_mean() const;  // of counts
  int64_t idle() const;              // experts without a token
};

// Of one part of what routers recorded in a pass, how often the tokens of all its context ranks chose each
// expert, by router, [experts + 1] int32; empty where one rank has all tokens.
std::vector<Tensor> counts_of_context(const layers::Decoder& model, const layers::RouterTrace& trace,
                                      size_t part);

// What the routers of this stage recorded in the passes over one micro-batch, one for each of its parts of
// the layers. `learners`: how many have rows in it.
struct StagedTraces {
  std::vector<std::shared_ptr<layers::RouterTrace>> passes = {};
  size_t learners = 1;
};

// Of each micro-batch, by learner and by router, what counts_of_context() is of one pass: of the routers of
// all stages, whose ranks all call it.
std::vector<std::vector<std::vector<Tensor>>> counts_of_stages(const layers::Decoder& model,
                                                               std::span<const StagedTraces> batches);

// What routers recorded in the passes of a step; a device may still be computing it.
class PendingLoads {
 public:
  PendingLoads() = default;
  explicit PendingLoads(const layers::Decoder& model);
  void add(const layers::RouterTrace& trace, size_t part);  // the record of one pass
  // Waits, and sums over all ranks.
  std::vector<RouterLoad> wait(collectives::Group& ranks) const;

 private:
  struct Recorded {
    std::shared_ptr<Reading> counts, sums;
  };
  struct Router {
    size_t layer = 0;
    int64_t experts = 0, top_k = 1;
    std::vector<Recorded> passes;
  };
  std::vector<Router> routers_;
};

// "the router of layer 3 had NaN or infinite logits for 12 of 512 tokens"; empty where none had.
std::string describe_not_finite(const std::vector<RouterLoad>& loads);

}  // namespace temper::training
