#pragma once
#include <map>
#include <string>
#include <vector>

#include "ops/kernel.h"

namespace temper::ops {

// What the user wrote under model.ops_implementation: op field → provider. Fields left out are not in the map.
struct OpsConfig {
  std::map<std::string, std::string> written;
  std::string fallback;  // provider for every field that was left out; empty: the best for the hardware
};

// The kernels of one model, chosen once and never changed.
class BoundOps {
 public:
  template <class Op>
  const Kernel<Op>& get() const {
    const auto found = bound_.find(Op::kName);
    invariant(found != bound_.end(), fmt::format("op {} was not bound when the model was built", Op::kName));
    return *static_cast<const Kernel<Op>*>(found->second.kernel);
  }

  struct Choice {
    std::string op, field, provider;
    bool written = false;
    std::vector<std::string> refused;  // "onednn: head_dim must be at most 256": why better ones were passed over
  };
  std::vector<Choice> choices() const;
  std::string report() const;  // one line per op, for the log

 private:
  friend class Binder;
  struct Bound {
    const void* kernel = nullptr;
    Choice choice;
  };
  std::map<std::string_view, Bound> bound_;
};

// Collects the ops a model uses and chooses a kernel for each: from what was written, the hardware and the
// registered kernels, nothing else. A choice that cannot run is an error that says why and lists what can.
class Binder {
 public:
  Binder(const OpsConfig& config, const HardwareFacts& facts) : config_(config), facts_(facts) {}

  // The kernel must accept every signature the model uses the op with.
  template <class Op>
  void bind(const std::vector<typename Op::Signature>& signatures) {
    std::vector<Candidate> candidates;
    for (const auto& [provider, kernel] : kernels<Op>().entries()) {
      Candidate candidate{provider, &kernel, std::nullopt};
      if (kernel.compose == nullptr && kernel.hardware != facts_.hardware)
        candidate.refusal = fmt::format("is for {}, this is {}", to_string(kernel.hardware), to_string(facts_.hardware));
      for (const auto& signature : signatures)
        if (!candidate.refusal) candidate.refusal = kernel.accepts(signature, facts_);
      candidates.push_back(std::move(candidate));
    }
    choose(Op::kName, Op::kField, candidates);
  }

  BoundOps finish();  // refuses fields in the configuration that no op of this model has

 private:
  struct Candidate {
    std::string provider;
    const void* kernel;
    Refusal refusal;
  };
  void choose(std::string_view op, std::string_view field, const std::vector<Candidate>& candidates);

  OpsConfig config_;
  HardwareFacts facts_;
  BoundOps result_;
};

}  // namespace temper::ops
