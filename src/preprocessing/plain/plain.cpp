#include "preprocessing/resample_loops.h"

namespace temper::preprocessing {

void register_plain() { registry<ResamplePasses>().add("plain", {horizontal_loops, vertical_loops}); }

}  // namespace temper::preprocessing
