#pragma once
#include <cstdint>
#include <span>

#include "training/passes/micro_batch.h"

namespace temper::training {

// Floating-point operations of one forward pass, as layers::forward_flops; answers that are compared count
// with their beginning, which counts once.
double forward_flops(const layers::DecoderConfig& config, std::span<const DocumentSpan> documents);

// Forward and backward: three times the forward products. Recomputation is overhead, not work, and not
// counted.
inline double training_flops(const layers::DecoderConfig& config, const auto& documents) {
  return 3 * forward_flops(config, documents);
}

// The same where the model is frozen, which saves the matrix multiplications of its weights' gradients, and
// an adapter with `elements` elements is trained.
inline double adapter_training_flops(const layers::DecoderConfig& config,
                                     std::span<const DocumentSpan> documents, int64_t elements) {
  double tokens = 0;
  for (const DocumentSpan& document : documents) tokens += static_cast<double>(document.length);
  return 2 * forward_flops(config, documents) + 6 * tokens * static_cast<double>(elements);
}

}  // namespace temper::training
