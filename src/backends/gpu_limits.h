#pragma once
#include <cstdint>

// Memory that kernels for NVIDIA GPUs take for themselves while they run; plans of memory count on it.
namespace temper::backends {

inline constexpr int64_t kProductWorkspace = 64 << 20;  // of a product
// Logits held at once: enough rows to use the head's weights thousands of times.
inline constexpr int64_t kLogitsBytes = int64_t{5} << 28;
// Scores that a deterministic attention's backward writes at once; one document always gets what it needs.
inline constexpr int64_t kScoreBytes = int64_t{1} << 30;

}  // namespace temper::backends
