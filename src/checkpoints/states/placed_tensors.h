#pragma once
#include <functional>
#include <vector>

#include "collectives/at_root.h"
#include "weights/layout.h"

namespace temper::checkpoints {

// The whole tensor of what the ranks hold, on all of them. A tensor that this rank holds whole is given back
// as it is, without a copy or a collective. All ranks of the mesh call it.
Tensor whole_of(const PlacedTensor& tensor, collectives::Group& ranks);

// Rank 0 runs `use` with a function that gives the whole of tensors[i], in any order; the others give their
// parts until it is done. All ranks call it; an Error of `use` is thrown on all of them.
void with_whole(
    collectives::Group& ranks, const std::vector<PlacedTensor>& tensors,
    const std::function<void(const collectives::Root&, const std::function<Tensor(size_t)>&)>& use);

}  // namespace temper::checkpoints
