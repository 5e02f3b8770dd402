#include "cli/arguments/new_weights.h"

#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "device/facts.h"

namespace temper::cli {

exchange::Loading loading_of(const std::string& name, const std::string& device) {
  using exchange::Loading;
  if (name == "staged") return Loading::kStaged;
  if (name == "direct") return Loading::kDirect;
  if (!name.empty()) fail("[--weights-mode] '{}' is not a mode; expected staged or direct", name);
  return exchange::loading_for(detect_hardware(device).hardware);
}

NewWeights::NewWeights(const std::string& socket, layers::Decoder& model, Adapters& adapters,
                       exchange::Loading loading)
    : parameters_(model.parameters()),
      adapters_(adapters),
      receiver_(socket, model.parameters(),
                {.loading = loading,
                 .adapters = this,
                 .quantizers = model.quantizers().empty() ? nullptr : &model.quantizers()}) {
  log_info(fmt::format("takes new weights at {}{}", socket,
                       loading == exchange::Loading::kDirect ? ", in place of the old ones" : ""));
}

layers::Adapter* NewWeights::awaited(const std::string& name) { return adapters_.named(name).adapter.get(); }

void NewWeights::install(const std::string& name, std::unique_ptr<layers::Adapter> adapter) {
  adapters_.named(name).adapter = std::move(adapter);
}

bool NewWeights::take(const std::function<bool()>& stop) {
  const auto taken = receiver_.take_new(stop);
  if (!taken) return !receiver_.holds();
  const auto& changed = taken->adapter ? adapters_.named(*taken->adapter).adapter->parameters() : parameters_;
  numbers_.emplace(changed.version(), taken->version);
  log_info(fmt::format("took {} of version {}: {} in {:.0f} ms, {:.2f} GB/s",
                       taken->adapter ? fmt::format("adapter {}", *taken->adapter) : "weights",
                       taken->version, format_bytes(taken->bytes), taken->seconds * 1e3,
                       static_cast<double>(taken->bytes) / 1e9 / taken->seconds));
  return !receiver_.holds();
}

Json::Array NewWeights::numbers_of(const std::vector<uint64_t>& versions) const {
  Json::Array numbers;
  for (const uint64_t version : versions) {
    const auto found = numbers_.find(version);
    numbers.emplace_back(found == numbers_.end() ? 0 : found->second);
  }
  return numbers;
}

}  // namespace temper::cli
