#include "training/passes/flops.h"

#include <vector>

namespace temper::training {

double forward_flops(const layers::DecoderConfig& config, std::span<const DocumentSpan> documents) {
  std::vector<int32_t> whole, again;  // beginnings that all but one of their answers need not compute
  for (const DocumentSpan& document : documents) {
    const auto shared = static_cast<int32_t>(document.shared());
    if (document.answers.empty()) whole.push_back(shared);
    for (const data::Answer& answer : document.answers)
      whole.push_back(shared + static_cast<int32_t>(answer.length));
    if (document.answers.size() > 1) again.insert(again.end(), document.answers.size() - 1, shared);
  }
  return layers::forward_flops(config, whole) - layers::forward_flops(config, again);
}

}  // namespace temper::training
