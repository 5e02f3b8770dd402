#pragma once
#include <vector>

#include "parallel/pipeline/schedule.h"

namespace temper::parallel {

// The passes of each rank, in order, with the transfers that they need in between. Each transfer has a moment
// at which neither rank computes anything, in a run in which all parts take as long as `costs` says, where
// there is one: so neither rank keeps the other waiting. All ranks have transfers and passes in the order of
// these moments, which is one order for all of them: the first action in it that is not done can always be
// done. Passes may be those forward alone: no gradient is then sent.
//
// An Error of kind kDefect where passes wait for each other.
std::vector<std::vector<Action>> with_transfers(const PipelineShape& shape,
                                                const std::vector<std::vector<Action>>& passes,
                                                const PartCosts& costs);

}  // namespace temper::parallel
