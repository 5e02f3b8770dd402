#pragma once
#include "base/parts/registry.h"
#include "media/picture.h"
#include "preprocessing/resample_weights.h"

namespace temper::preprocessing {

// What rooms register: the two passes of a resampling, all with the same bytes of red, green and blue. `to`
// has the size of `from`, except along the pass.
struct ResamplePasses {
  void (*horizontal)(const media::Picture& from, const ResampleWeights& weights, media::Picture& to);
  void (*vertical)(const media::Picture& from, const ResampleWeights& weights, media::Picture& to);
};

// The bytes of Pillow 12.3: first along rows, rounded to bytes, then along columns; a pass that keeps its
// side is left out. With the passes of the room that is preferred.
media::Picture resample(const media::Picture& picture, media::Size size, Filter filter);
media::Picture resample(const media::Picture& picture, media::Size size, Filter filter,
                        const ResamplePasses& passes);

}  // namespace temper::preprocessing
