#pragma once
#include <cstdint>
#include <vector>

#include "collectives/group.h"
#include "weights/layout.h"

namespace temper::parallel {

// What several ranks hold of a run, by its placement, must have the same bits on all of them: otherwise they
// train different models from there on, and losses say so late or never. Compares hashes of what all ranks
// hold; of large tensors of some elements, others after each update. All ranks call it; an Error of kind
// kDefect, on all of them, names the tensor and the ranks.
void check_replicas(collectives::Group& ranks, const std::vector<PlacedTensor>& held, int64_t update);

}  // namespace temper::parallel
