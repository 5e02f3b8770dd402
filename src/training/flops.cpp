#include "training/flops.h"

#include <algorithm>

namespace temper::training {

double forward_flops(const layers::DecoderConfig& config, std::span<const int32_t> document_lengths) {
  const auto hidden = static_cast<double>(config.hidden_size),
             inner = static_cast<double>(config.intermediate_size);
  const auto q = static_cast<double>(config.num_heads * config.head_dim);
  const auto kv = static_cast<double>(config.num_kv_heads * config.head_dim);
  const double layer = hidden * (q + 2 * kv) + q * hidden + 3 * hidden * inner;
  const double head = hidden * static_cast<double>(config.vocab_size);
  double tokens = 0, attended = 0;
  for (const int32_t length : document_lengths) {
    tokens += length;
    for (const int64_t window : config.windows) {
      const auto n = static_cast<double>(length);
      const double w = window > 0 ? std::min(static_cast<double>(window), n) : n;
      attended += w * (w + 1) / 2 + (n - w) * w;
    }
  }
  return 2 * tokens * (layer * static_cast<double>(config.num_layers) + head) + 4 * q * attended;
}

}  // namespace temper::training
