#pragma once
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ops/kernel.h"
#include "ops/resolve.h"

namespace temper::ops {

// A kernel that was not chosen, and why.
struct PassedOver {
  std::string provider, reason;
};

// A default that is not the best kernel there is for this hardware.
struct Shortfall {
  std::string provider;  // the best one; empty where no kernel of the op is here that could be asked for it
  std::string reason;    // why it is not here, and what brings it
  std::string cost;      // of doing without, where it was measured
};

// One decision, as reports show it.
struct Choice {
  std::string op, field, provider;      // op and provider are empty where nothing here reads the field
  std::string written;                  // the name in the configuration; empty: left out
  bool fallback = false;                // left out, and what the configuration names for all such fields
  std::string preferred;                // left out, and tried first for this reason
  std::string modules;                  // the pattern of an override; empty: everywhere else
  std::vector<PassedOver> passed_over;  // better ones that cannot run here
  std::vector<PassedOver> others;    // that could have been written instead; a reason where they cannot run
  std::vector<std::string> tilings;  // of kernels that work in on-chip memory
  std::vector<std::string> passes;   // of other kernels: "forward of cudnn"
  std::optional<Shortfall> shortfall = {};
};

// In a sentence, for a choice that has one.
std::string describe_shortfall(const Choice& choice);

// What an op of a module is bound to.
struct ModuleKernel {
  std::string module, op, provider;  // a program without modules has ""
  const void* kernel = nullptr;      // the Kernel<Op> itself

  bool operator==(const ModuleKernel&) const = default;
};

// The kernels of one model, chosen once: nothing can bind an op of a living model anew.
class BoundOps {
 public:
  BoundOps();
  BoundOps(const BoundOps&);
  BoundOps(BoundOps&&) noexcept;
  BoundOps& operator=(const BoundOps&);
  BoundOps& operator=(BoundOps&&) noexcept;
  ~BoundOps();

  template <class Op>
  const Kernel<Op>& get() const {
    const auto found = kernels_.find(Op::kName);
    invariant(found != kernels_.end(),
              fmt::format("op {} was not bound when the model was built", Op::kName));
    return *static_cast<const Kernel<Op>*>(found->second);
  }
  // The kernel of one module ("layers.0.mlp"), for which the op must have been bound.
  template <class Op>
  const Kernel<Op>& at(std::string_view module) const {
    check_use(Op::kName, module);
    const auto found = modules_.find(module);
    return found == modules_.end() ? get<Op>() : found->second->template get<Op>();
  }

  const std::vector<Choice>& choices() const { return choices_; }
  // What every op of every module is bound to now, by op and module.
  std::vector<ModuleKernel> bindings() const;

  // The same kernels as they are bound on a device that only counts (Outline).
  BoundOps outlined() const;

 private:
  friend class Binder;
  void check_use(std::string_view op, std::string_view module) const;

  std::map<std::string_view, const void*> kernels_;                      // by op
  std::map<const void*, std::string> providers_;                         // by kernel
  std::map<std::string_view, std::set<std::string, std::less<>>> uses_;  // modules, by op
  std::vector<std::shared_ptr<const void>> owned_;                       // of outlined(), or with a tiling
  std::map<std::string, std::shared_ptr<const BoundOps>, std::less<>> modules_;
  std::vector<Choice> choices_;  // sorted by field
};

// The kernel of an op as a module holds it: found once, when the model is built. To bind it to another one
// afterwards is a defect. What it came from must outlive it.
template <class Op>
class Bound {
 public:
  Bound() = default;
  Bound(const Kernel<Op>& kernel) : kernel_(&kernel) {}
  Bound(const BoundOps& ops) : kernel_(&ops.get<Op>()) {}  // of a program without modules
  Bound(const Bound&) = default;
  Bound& operator=(const Bound& other) {
    invariant(kernel_ == nullptr || kernel_ == other.kernel_,
              fmt::format("op {} of a module was bound a second time", Op::kName));
    kernel_ = other.kernel_;
    return *this;
  }
  ~Bound() = default;

  const Kernel<Op>& operator*() const { return *kernel_; }
  const Kernel<Op>* operator->() const { return kernel_; }

 private:
  const Kernel<Op>* kernel_ = nullptr;
};

// Collects the ops a model uses and chooses a kernel for each: from what was written, the hardware, the
// family and the registered kernels, nothing else. A choice that cannot run is an error that says why and
// lists what can.
class Binder {
 public:
  Binder(OpsConfig config, HardwareFacts facts, std::string family = "");
  ~Binder();

  // A module of the model that uses an op.
  template <class Signature>
  struct Use {
    std::string module;
    Signature signature;
  };

  // All uses of an op at once; its kernel must accept each of their signatures.
  template <class Op>
  void bind(const std::vector<Use<typename Op::Signature>>& uses) {
    AnyOp op{Op::kName, Op::kField};
    for (const auto& use : uses) op.modules.push_back(use.module);
    for (const auto& [provider, kernel] : kernels<Op>().entries())
      op.registered.push_back({std::string(provider), &kernel});
    op.ask = [&uses, this](const void* any, size_t use) {
      const auto& kernel = *static_cast<const Kernel<Op>*>(any);
      const auto& signature = uses[use].signature;
      Answer answer{kernel.accepts(signature, facts_), {}};
      if (!answer.refusal && kernel.tilings != nullptr) answer.tilings = kernel.tilings(signature);
      return answer;
    };
    op.better = [&uses, this](const void* any, size_t use) {
      const auto& kernel = *static_cast<const Kernel<Op>*>(any);
      return kernel.better == nullptr ? std::nullopt : kernel.better(uses[use].signature, facts_);
    };
    op.facts = [this](const void* any) {
      const auto& kernel = *static_cast<const Kernel<Op>*>(any);
      return KernelFacts{kernel.compose != nullptr, kernel.deterministic, kernel.hardware, kernel.needs,
                         kernel.missing == nullptr ? std::nullopt : kernel.missing(facts_)};
    };
    op.made_of = [](const Made& made) -> std::shared_ptr<const void> {
      const auto at = [](const void* any) { return static_cast<const Kernel<Op>*>(any); };
      auto kernel =
          std::make_shared<Kernel<Op>>(completed(*at(made.kernel), at(made.forward), at(made.backward)));
      kernel->tiling = made.tiling;
      return kernel;
    };
    bind_op(op);
  }
  template <class Op>
  void bind(const std::vector<typename Op::Signature>& signatures) {
    std::vector<Use<typename Op::Signature>> uses;
    for (const auto& signature : signatures) uses.push_back({"", signature});
    bind<Op>(uses);
  }

  // One use more; finish() binds the ops that were used so.
  template <class Op>
  void use(std::string module, const typename Op::Signature& signature) {
    using Uses = std::vector<Use<typename Op::Signature>>;
    auto collected = std::find_if(collected_.begin(), collected_.end(),
                                  [](const Collected& each) { return each.op == Op::kName; });
    if (collected == collected_.end()) {
      auto uses = std::make_shared<Uses>();
      const auto bind_all = [uses](Binder& binder) { binder.bind<Op>(*uses); };
      collected = collected_.insert(collected_.end(), {Op::kName, uses, bind_all});
    }
    std::static_pointer_cast<Uses>(collected->uses)->push_back({std::move(module), signature});
  }

  // Refuses patterns that no module matches. Fields that this model, or this version, has no op for stay in
  // the report.
  BoundOps finish();

 private:
  // A kernel, and what makes it complete for its uses.
  struct Made {
    const void* kernel = nullptr;
    const void *forward = nullptr, *backward = nullptr;  // of other kernels
    int tiling = 0;
  };
  struct Candidate {
    std::string provider = {};
    Made made = {};
    bool family = false;  // the family's own
    size_t place = 0;     // in the order of preference, whatever is tried first
    Refusal refusal = {};
    // Where it is refused for what could be brought, a library or a room of the build: the same behind
    // "which".
    Refusal missing = {};
    std::vector<std::string> tilings = {}, passes = {};
    bool elsewhere = false;  // for other hardware
    bool deterministic = true;
  };
  struct Wanted {
    std::string name;  // in the configuration, or a provider; empty: the best
    bool written = false;
    std::string pattern = {};  // of an override
  };
  // An op and its uses, whatever its type.
  struct KernelFacts {
    bool composes = false, deterministic = true;
    std::string_view hardware;
    Needs needs;
    Refusal missing;
  };
  struct Answer {
    Refusal refusal;
    std::optional<std::vector<Tiling>> tilings;
  };
  struct AnyOp {
    std::string_view op, field;
    std::vector<std::string> modules = {};                             // of each use
    std::vector<std::pair<std::string, const void*>> registered = {};  // provider, kernel
    std::function<KernelFacts(const void* kernel)> facts = {};
    std::function<Answer(const void* kernel, size_t use)> ask = {};
    std::function<std::optional<Better>(const void* kernel, size_t use)> better = {};
    std::function<std::shared_ptr<const void>(const Made&)> made_of = {};
  };
  struct Collected {
    std::string_view op;
    std::shared_ptr<void> uses;  // a vector of the op's Use
    std::function<void(Binder&)> bind;
  };

  void bind_op(const AnyOp& op);
  // The family's kernels, then the registry's, each asked about the uses.
  std::vector<Candidate> candidates(const AnyOp& op, const std::vector<size_t>& uses) const;
  void ask(const AnyOp& op, const std::vector<size_t>& uses, Candidate& candidate) const;
  const void* find_pass(const AnyOp& op, const std::vector<size_t>& uses, std::string_view pass,
                        const std::vector<std::string_view>& providers, Candidate& candidate) const;
  std::optional<Shortfall> shortfall(const AnyOp& op, const std::vector<size_t>& uses,
                                     const std::vector<Candidate>& candidates, const Candidate& chosen) const;
  std::optional<Shortfall> behind_composition(const AnyOp& op, const std::vector<size_t>& uses,
                                              const std::vector<Candidate>& candidates) const;
  void refuse_shortfalls() const;
  const Candidate* choose(const AnyOp& op, const Wanted& wanted, const std::vector<Candidate>& candidates,
                          Choice& choice) const;
  const FieldValues* override_of(const std::string& module, const std::string& field, std::string* pattern);

  OpsConfig config_;
  HardwareFacts facts_;
  std::string family_;
  std::vector<Collected> collected_;  // in the order of their first use
  std::set<std::pair<std::string, std::string>>
      unmatched_;  // pattern, field: overrides that named no module yet
  std::map<std::string, std::map<std::string_view, const void*>> overridden_;  // by module
  BoundOps result_;
};

}  // namespace temper::ops
