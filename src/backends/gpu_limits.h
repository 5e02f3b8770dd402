#pragma once
#include <cstdint>

// Memory that kernels for NVIDIA GPUs take for themselves while they run.
namespace temper::backends {

inline constexpr int64_t kProductWorkspace = 64 << 20;  // of a product
// Logits held at once: enough rows to use the head's weights thousands of times.
inline constexpr int64_t kLogitsBytes = int64_t{5} << 28;
// Scores that cuDNN's deterministic attention writes at once in backward; one document always gets what it
// needs.
inline constexpr int64_t kScoreBytes = int64_t{1} << 30;
// What the kernel of our own for attention's backward is written for; it writes no scores.
inline constexpr bool is_for_hopper(int compute_capability, int64_t head_dim) {
  return compute_capability == 90 && (head_dim == 64 || head_dim == 128);
}

}  // namespace temper::backends
