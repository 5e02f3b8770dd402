#pragma once
#include "backends/onednn/tile.h"

namespace temper::backends {

// The same products as oneDNN offers them; both run on the calling thread alone.
void gemm(const Tile& tile);    // float32; any shape at once
void matmul(const Tile& tile);  // both operands of one dtype; compiles code for each new shape and keeps it

}  // namespace temper::backends
