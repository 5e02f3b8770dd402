#pragma once
#include <vector>

#include "collectives/group.h"
#include "data/pack.h"

namespace temper::training {

// The rows of each rank, on all of them.
std::vector<std::vector<data::PackedRow>> gather_rows(collectives::Group& ranks,
                                                      const std::vector<data::PackedRow>& rows);

}  // namespace temper::training
