#pragma once
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "ops/candidates.h"
#include "ops/resolve.h"

namespace temper::ops {

// What an op of a module is bound to.
struct ModuleKernel {
  std::string module, op, provider;  // a program without modules has ""
  const void* kernel = nullptr;      // the Kernel<Op> itself

  bool operator==(const ModuleKernel&) const = default;
};

// The kernels of one model, chosen once: nothing can bind an op of a living model again.
class BoundOps {
 public:
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

  // All uses of an op at once; its kernel must accept each of their signatures.
  template <class Op>
  void bind(const std::vector<OpUse<typename Op::Signature>>& uses) {
    bind_op(untyped<Op>(uses, facts_));
  }
  template <class Op>
  void bind(const std::vector<typename Op::Signature>& signatures) {
    std::vector<OpUse<typename Op::Signature>> uses;
    for (const auto& signature : signatures) uses.push_back({"", signature});
    bind<Op>(uses);
  }

  // One use more; finish() binds the ops that were used so.
  template <class Op>
  void use(std::string module, const typename Op::Signature& signature) {
    using Uses = std::vector<OpUse<typename Op::Signature>>;
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
  struct Collected {
    std::string_view op;
    std::shared_ptr<void> uses;  // a vector of the op's OpUse
    std::function<void(Binder&)> bind;
  };

  void bind_op(const UntypedOp& op);
  void bind_group(const UntypedOp& op, const std::string& pattern, const std::vector<size_t>& uses);
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
