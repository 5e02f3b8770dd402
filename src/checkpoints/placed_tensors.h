#pragma once
#include <functional>
#include <string>
#include <vector>

#include "checkpoints/training_state.h"
#include "collectives/group.h"
#include "weights/layout.h"

// Files hold whole tensors, whatever ranks hold of them: a state is continued by any number of ranks.
namespace temper::checkpoints {

// The whole tensor of what the ranks hold, on all of them. A tensor that this rank holds whole is given back
// as it is, without a copy or a collective. All ranks of the mesh call it.
Tensor whole_of(const PlacedTensor& tensor, collectives::Group& ranks);

// Rank 0 runs `use` with a function that gives the whole of tensors[i], in any order; the others give their
// parts until it is done. All ranks call it; an Error of `use` is thrown on all of them.
void with_whole(collectives::Group& ranks, const std::vector<PlacedTensor>& tensors,
                const std::function<void(const std::function<Tensor(size_t)>&)>& use);

// Adds the whole tensors to a state. All ranks call it; those that write nothing have no writer.
void add_placed(StateWriter* writer, const std::string& file_name, const std::vector<PlacedTensor>& tensors,
                collectives::Group& ranks);

// Each tensor's own part of the file's. An Error where the file has no such tensor, or one of another shape.
void read_placed(const SafetensorsFile& file, const std::vector<PlacedTensor>& tensors);

}  // namespace temper::checkpoints
