#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "exchange/receiver.h"

namespace temper::cli {

// Weights that come through a socket while answers are computed (docs/weight_exchange.md), and the numbers by
// which answers name them: 0 are those that were loaded.
class NewWeights {
 public:
  NewWeights(const std::string& socket, layers::ParameterStore& parameters);
  // Between two passes: what has come whole is what passes compute with from now on.
  void take();
  // Of versions of the store, as tokens have them, the numbers.
  Json::Array numbers_of(const std::vector<uint64_t>& versions) const;

 private:
  const layers::ParameterStore& parameters_;
  std::map<uint64_t, int64_t> numbers_;  // by the version of the store
  exchange::Receiver receiver_;
};

}  // namespace temper::cli
