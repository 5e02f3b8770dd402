#include "training/flops.h"

#include <algorithm>
#include <vector>

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

double forward_flops(const layers::DecoderConfig& config, std::span<const DocumentSpan> documents) {
  std::vector<int32_t> whole, again;  // beginnings that all but one of their answers need not compute
  for (const DocumentSpan& document : documents) {
    const auto shared = static_cast<int32_t>(document.shared());
    if (document.answers.empty()) whole.push_back(shared);
    for (const data::Answer& answer : document.answers)
      whole.push_back(shared + static_cast<int32_t>(answer.length));
    if (document.answers.size() > 1) again.insert(again.end(), document.answers.size() - 1, shared);
  }
  return forward_flops(config, whole) - forward_flops(config, again);
}

}  // namespace temper::training
