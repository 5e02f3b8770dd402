#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "layers/decoder.h"
#include "ops/op_listener.h"

namespace temper::rollout {

// A result of an op in one pass, token by token.
struct OpResult {
  std::string op;     // "linear"
  std::string place;  // the parameter that it read, "layers.1.attention.qkv", or the module that it is in
  // What results of two passes that mean the same have in common, whatever op each of them uses.
  std::string key;
  int64_t width = 0;           // numbers of each token
  std::vector<uint64_t> rows;  // a hash of each token's; -0 is 0, and all NaN are one

  bool compares() const { return !rows.empty(); }
};

// What the ops of passes give, as hashes: two passes are compared by it, and no result is kept.
class OpTrace : public ops::OpListener {
 public:
  // `adapters`: all that passes may have; null is the model alone.
  explicit OpTrace(const layers::Decoder& model, const std::set<const layers::Adapter*>& adapters = {});
  void computed(std::string_view op, const Tensor& weight, const Tensor& result) override;
  // The results since the last call, of a pass over this many tokens, in the order in which they began. Ops
  // that computed some of the tokens after others are one; rows are empty where a result has none for each.
  std::vector<OpResult> take(int64_t tokens);

 private:
  void add_names(const layers::ParameterStore& parameters, const std::map<std::string, std::string>& others);

  std::unordered_map<const void*, std::string> names_;  // of parameters, by their memory
  std::string place_;                                   // the last one that an op read
  std::vector<OpResult> results_;
};

}  // namespace temper::rollout
