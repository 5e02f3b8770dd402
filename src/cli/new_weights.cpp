#include "cli/new_weights.h"

#include "base/log.h"
#include "base/text.h"

namespace temper::cli {

NewWeights::NewWeights(const std::string& socket, layers::ParameterStore& parameters)
    : parameters_(parameters), numbers_{{parameters.version(), 0}}, receiver_(socket, parameters) {
  log_info(fmt::format("takes new weights at {}", socket));
}

void NewWeights::take() {
  const auto taken = receiver_.take_new();
  if (!taken) return;
  numbers_.emplace(parameters_.version(), taken->version);
  log_info(fmt::format("took weights of version {}: {} in {:.0f} ms, {:.2f} GB/s", taken->version,
                       format_bytes(taken->bytes), taken->seconds * 1e3,
                       static_cast<double>(taken->bytes) / 1e9 / taken->seconds));
}

Json::Array NewWeights::numbers_of(const std::vector<uint64_t>& versions) const {
  Json::Array numbers;
  for (const uint64_t version : versions) numbers.emplace_back(numbers_.at(version));
  return numbers;
}

}  // namespace temper::cli
