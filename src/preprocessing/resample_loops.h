#pragma once
#include "preprocessing/resample.h"

// The two passes as loops: what all others have to compute.
namespace temper::preprocessing {

void horizontal_loops(const media::Picture& from, const ResampleWeights& weights, media::Picture& to);
void vertical_loops(const media::Picture& from, const ResampleWeights& weights, media::Picture& to);

}  // namespace temper::preprocessing
