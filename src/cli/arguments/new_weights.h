#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/json/json.h"
#include "cli/arguments/adapters.h"
#include "exchange/receiver.h"

namespace temper::cli {

// "staged", "direct", or "": as the device's class of hardware has it.
exchange::Loading loading_of(const std::string& name, const std::string& device);

// Weights that come through a socket while answers are computed (docs/weight_exchange.md), of the model and
// of adapters, and the numbers by which answers name them: 0 are those that were loaded.
class NewWeights final : exchange::AdapterStore {
 public:
  NewWeights(const std::string& socket, layers::Decoder& model, Adapters& adapters,
             exchange::Loading loading);
  // Between two passes: what has come whole is what passes compute with from now on. False where `stop` ended
  // a wait for weights: there can be no pass then.
  bool take(const std::function<bool()>& stop);
  // Of versions of stores, as tokens have them, the numbers.
  Json::Array numbers_of(const std::vector<uint64_t>& versions) const;

 private:
  layers::Adapter* awaited(const std::string& name) override;
  void install(const std::string& name, std::unique_ptr<layers::Adapter> adapter) override;

  const layers::ParameterStore& parameters_;
  Adapters& adapters_;
  std::map<uint64_t, int64_t> numbers_;  // by the version of the store
  exchange::Receiver receiver_;
};

}  // namespace temper::cli
