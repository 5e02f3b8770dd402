#pragma once
#include "layers/decoder.h"

namespace temper::layers {

// How many of the context ranks of a mesh, which follow one another, exchange heads of attention in such a
// model; groups of this size give each other keys and values. mesh.context: heads alone travel; 1: keys
// alone. It is what the mesh says, or as many as the heads of every layer allow. An Error, which names the
// key and what would fit, where they cannot compute the model together.
int context_heads_of(const DecoderConfig& config, const Mesh& mesh);

}  // namespace temper::layers
