#pragma once
#include <string>

#include "backends/cublaslt/library.h"

namespace temper::backends {

// Algorithms that were measured on this machine, by GPU, library version and shape, kept in the user's cache
// folder. A file that cannot be read or written costs measuring again, with a warning.
bool recall_algorithm(Device device, const std::string& shape, cublasLtMatmulAlgo_t* algorithm);
void remember_algorithm(Device device, const std::string& shape, const cublasLtMatmulAlgo_t& algorithm);

}  // namespace temper::backends
