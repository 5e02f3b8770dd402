#pragma once
#include "backends/onednn/tiles/tile.h"

namespace temper::backends {

// The products as oneDNN offers them; both run on the calling thread alone.
void gemm(const Tile& tile);    // float32 operands; any shape at once
void matmul(const Tile& tile);  // bfloat16 operands; compiles code for each new shape and keeps it
int64_t matmul_workspace(const Tile& tile);  // bytes; compiles nothing, reads no memory

}  // namespace temper::backends
