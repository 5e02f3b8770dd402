#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ops/choice.h"
#include "ops/kernel.h"

// The kernels of one op, asked whether they can run some of its uses, whatever the op's type.
namespace temper::ops {

// A kernel, and what makes it complete for its uses. Pointers are to a Kernel<Op>.
struct KernelParts {
  const void* kernel = nullptr;
  const void *forward = nullptr, *backward = nullptr;  // of other kernels
  int tiling = 0;
};

struct KernelFacts {
  bool composes = false, deterministic = true;
  std::string_view hardware = {};
  Needs needs = {};
  Refusal missing = {};
};

// What a kernel says of one use.
struct Answer {
  Refusal refusal;
  std::optional<std::vector<Tiling>> tilings;
};

// An op and its uses.
struct UntypedOp {
  std::string_view op, field;
  std::vector<std::string> modules = {};                             // of each use
  std::vector<std::pair<std::string, const void*>> registered = {};  // provider, kernel
  std::function<KernelFacts(const void* kernel)> facts = {};
  std::function<Answer(const void* kernel, size_t use)> ask = {};
  std::function<std::optional<Better>(const void* kernel, size_t use)> better = {};
  std::function<std::shared_ptr<const void>(const KernelParts&)> complete = {};
};

// A module of the model that uses an op.
template <class Signature>
struct OpUse {
  std::string module;
  Signature signature;
};

// What an op refuses of a kernel by what the kernel declares (Op::refuses), then what the kernel says itself.
template <class Op>
Refusal ask_kernel(const Kernel<Op>& kernel, const typename Op::Signature& signature,
                   const HardwareFacts& facts) {
  if constexpr (requires { Op::refuses(kernel.traits, signature); })
    if (kernel.compose == nullptr)
      if (Refusal refusal = Op::refuses(kernel.traits, signature)) return refusal;
  return kernel.accepts(signature, facts);
}

// The result refers to both arguments.
template <class Op>
UntypedOp untyped(const std::vector<OpUse<typename Op::Signature>>& uses, const HardwareFacts& facts) {
  static constexpr auto at = [](const void* any) { return static_cast<const Kernel<Op>*>(any); };
  UntypedOp op{Op::kName, Op::kField};
  for (const auto& use : uses) op.modules.push_back(use.module);
  for (const auto& [provider, kernel] : kernels<Op>().entries())
    op.registered.push_back({std::string(provider), &kernel});
  op.facts = [&facts](const void* any) {
    const Kernel<Op>& kernel = *at(any);
    return KernelFacts{kernel.compose != nullptr, kernel.deterministic, kernel.hardware, kernel.needs,
                       kernel.missing == nullptr ? std::nullopt : kernel.missing(facts)};
  };
  op.ask = [&uses, &facts](const void* any, size_t use) {
    const auto& signature = uses[use].signature;
    Answer answer{ask_kernel(*at(any), signature, facts), {}};
    if (!answer.refusal && at(any)->tilings != nullptr) answer.tilings = at(any)->tilings(signature);
    return answer;
  };
  op.better = [&uses, &facts](const void* any, size_t use) {
    return at(any)->better == nullptr ? std::nullopt : at(any)->better(uses[use].signature, facts);
  };
  op.complete = [](const KernelParts& parts) -> std::shared_ptr<const void> {
    auto kernel =
        std::make_shared<Kernel<Op>>(completed(*at(parts.kernel), at(parts.forward), at(parts.backward)));
    kernel->tiling = parts.tiling;
    return kernel;
  };
  return op;
}

// A kernel, and what it says of the uses.
struct Candidate {
  std::string provider = {};
  KernelParts parts = {};
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

// The kernels of an op for some of its uses on some hardware. The arguments must outlive it.
class Candidates {
 public:
  Candidates(const UntypedOp& op, const std::vector<size_t>& uses, const HardwareFacts& facts)
      : op_(op), uses_(uses), facts_(facts) {}

  // The family's kernels ("" for none), then the registry's, each asked about the uses.
  std::vector<Candidate> find(const std::string& family) const;

  // What was chosen by default, compared with the best kernel that the op has for these uses on such
  // hardware: one that would run except for what is missing here, or one that this build does not have.
  std::optional<Shortfall> shortfall(const std::vector<Candidate>& found, const Candidate& chosen) const;

 private:
  void ask(Candidate& candidate) const;
  const void* find_pass(std::string_view pass, const std::vector<std::string_view>& providers,
                        Candidate& candidate) const;
  std::optional<Shortfall> behind_composition(const std::vector<Candidate>& found) const;
  std::optional<Shortfall> not_built(const std::optional<Better>& better, std::string_view cost) const;
  std::optional<Better> better_for_all(const void* kernel) const;

  const UntypedOp& op_;
  const std::vector<size_t>& uses_;
  const HardwareFacts& facts_;
};

// "is not in this build", with the reason where it is known.
std::string not_in_build(std::string_view provider);

}  // namespace temper::ops
