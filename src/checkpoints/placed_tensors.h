#pragma once
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

// Adds the whole tensors to a state. All ranks call it; those that write nothing have no writer.
void add_placed(StateWriter* writer, const std::string& file_name, const std::vector<PlacedTensor>& tensors,
                collectives::Group& ranks);

// Each tensor's own part of the file's. An Error where the file has no such tensor, or one of another shape.
void read_placed(const SafetensorsFile& file, const std::vector<PlacedTensor>& tensors);

}  // namespace temper::checkpoints
