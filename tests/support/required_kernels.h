#pragma once
#include <algorithm>
#include <climits>
#include <set>

#include "base/rooms.h"
#include "ops/adamw/adamw.h"
#include "ops/attention/attention.h"
#include "ops/attention/decode_attention.h"
#include "ops/attention/paged_attention.h"
#include "ops/causal_conv1d/causal_conv1d.h"
#include "ops/chunk_gated_delta_rule/chunk_gated_delta_rule.h"
#include "ops/chunk_gated_delta_rule/delta_gates.h"
#include "ops/chunk_gated_delta_rule/recurrent_gated_delta_rule.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/dropout/dropout.h"
#include "ops/embedding/embedding.h"
#include "ops/expert_linear/expert_linear.h"
#include "ops/fake_quantize/fake_quantize.h"
#include "ops/global_norm/global_norm.h"
#include "ops/hardware_table.h"
#include "ops/latent_decode/latent_decode.h"
#include "ops/latent_heads/latent_heads.h"
#include "ops/latent_heads/latent_rotary.h"
#include "ops/linear/linear.h"
#include "ops/load_balancing_loss/load_balancing_loss.h"
#include "ops/lora_linear/lora_linear.h"
#include "ops/lora_moe_experts/lora_moe_experts.h"
#include "ops/moe_experts/moe_experts.h"
#include "ops/moe_router/moe_router.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/rms_norm_gated/rms_norm_gated.h"
#include "ops/rotary/rotary.h"
#include "ops/rounded_experts/rounded_experts.h"
#include "ops/sample/sample.h"
#include "ops/swiglu/swiglu.h"
#include "ops/token_log_probs/token_log_probs.h"

// What must bind: the kernels of this version by op, hardware and dtype, written down apart from the kernels'
// own `accepts`. A kernel that refuses what its line names fails the tests; without this table it would only
// not be tested.
namespace temper::op_testing {

// A class of hardware and, of GPUs, a range of compute capabilities.
struct Where {
  std::string_view hardware;
  int first_capability = 0, last_capability = INT_MAX;

  bool covers(const HardwareFacts& facts) const {
    return facts.hardware == hardware && facts.compute_capability >= first_capability &&
           facts.compute_capability <= last_capability;
  }
};

template <class Op>
struct RequiredKernel {
  std::string_view provider, room;  // the room of src/backends that brings it, or what it needs
  Where where;
  std::vector<DType> dtypes;
  bool (*takes)(const typename Op::Signature&) = nullptr;  // the shapes it must accept; null: all
  bool only_when_written = false;                          // never a default
  int64_t scratch_bytes = 0;                               // of on-chip memory, at least

  bool must_accept(const typename Op::Signature& signature, const HardwareFacts& facts) const;
};

template <class Op>
struct RequiredKernels {
  typename Op::Signature usual;             // sizes of an ordinary model
  std::vector<DType> dtypes;                // that the op takes
  std::vector<RequiredKernel<Op>> kernels;  // in order of preference
};

// Of an op without kernels of its own nothing is required.
template <class Op>
const RequiredKernels<Op>& required_kernels() {
  static const RequiredKernels<Op> none;
  return none;
}
template <>
const RequiredKernels<ops::AdamW>& required_kernels();
template <>
const RequiredKernels<ops::Attention>& required_kernels();
template <>
const RequiredKernels<ops::CausalConv1d>& required_kernels();
template <>
const RequiredKernels<ops::CausalConv1dUpdate>& required_kernels();
template <>
const RequiredKernels<ops::DeltaGates>& required_kernels();
template <>
const RequiredKernels<ops::RecurrentGatedDeltaRule>& required_kernels();
template <>
const RequiredKernels<ops::RmsNormGated>& required_kernels();
template <>
const RequiredKernels<ops::ChunkGatedDeltaRule>& required_kernels();
template <>
const RequiredKernels<ops::CrossEntropy>& required_kernels();
template <>
const RequiredKernels<ops::DecodeAttention>& required_kernels();
template <>
const RequiredKernels<ops::Dropout>& required_kernels();
template <>
const RequiredKernels<ops::Embedding>& required_kernels();
template <>
const RequiredKernels<ops::ExpertLinear>& required_kernels();
template <>
const RequiredKernels<ops::FakeQuantize>& required_kernels();
template <>
const RequiredKernels<ops::GlobalNorm>& required_kernels();
template <>
const RequiredKernels<ops::LatentDecode>& required_kernels();
template <>
const RequiredKernels<ops::LatentHeads>& required_kernels();
template <>
const RequiredKernels<ops::LatentRotary>& required_kernels();
template <>
const RequiredKernels<ops::Linear>& required_kernels();
template <>
const RequiredKernels<ops::LoraLinear>& required_kernels();
template <>
const RequiredKernels<ops::LoadBalancingLoss>& required_kernels();
template <>
const RequiredKernels<ops::LoraMoeExperts>& required_kernels();
template <>
const RequiredKernels<ops::MoeExperts>& required_kernels();
template <>
const RequiredKernels<ops::MoeRouter>& required_kernels();
template <>
const RequiredKernels<ops::PagedAttention>& required_kernels();
template <>
const RequiredKernels<ops::RmsNorm>& required_kernels();
template <>
const RequiredKernels<ops::Rotary>& required_kernels();
template <>
const RequiredKernels<ops::RoundedExperts>& required_kernels();
template <>
const RequiredKernels<ops::Sample>& required_kernels();
template <>
const RequiredKernels<ops::Swiglu>& required_kernels();
template <>
const RequiredKernels<ops::TokenLogProbs>& required_kernels();

// Calls f.template operator()<Op>() for every op of the table.
template <class F>
void visit_required_ops(F&& f) {
  const auto all = [&]<class... Op>() { (f.template operator()<Op>(), ...); };
  all.template operator()<
      ops::AdamW, ops::Attention, ops::CausalConv1d, ops::CausalConv1dUpdate, ops::ChunkGatedDeltaRule,
      ops::CrossEntropy, ops::DecodeAttention, ops::DeltaGates, ops::Dropout, ops::Embedding,
      ops::ExpertLinear, ops::FakeQuantize, ops::GlobalNorm, ops::LatentDecode, ops::LatentHeads,
      ops::LatentRotary, ops::Linear, ops::LoadBalancingLoss, ops::LoraLinear, ops::LoraMoeExperts,
      ops::MoeExperts, ops::MoeRouter, ops::PagedAttention, ops::RecurrentGatedDeltaRule, ops::RmsNorm,
      ops::RmsNormGated, ops::Rotary, ops::RoundedExperts, ops::Sample, ops::Swiglu, ops::TokenLogProbs>();
}

template <class Signature>
auto& dtype_in(Signature& signature) {
  if constexpr (requires { signature.dtype; })
    return signature.dtype;
  else
    return signature.grads;
}

template <class Op>
bool RequiredKernel<Op>::must_accept(const typename Op::Signature& signature,
                                     const HardwareFacts& facts) const {
  const DType dtype = dtype_in(signature);
  return is_built("backends", room) && where.covers(facts) &&
         std::find(dtypes.begin(), dtypes.end(), dtype) != dtypes.end() &&
         (takes == nullptr || takes(signature)) &&
         (facts.scratch_bytes == 0 || facts.scratch_bytes >= scratch_bytes);
}

// The provider that an op gets on some hardware, by default or where one is written; else what the error
// says.
template <class Op>
std::string bound_provider(const typename Op::Signature& signature, const HardwareFacts& facts,
                           std::string_view written = "") {
  ops::OpsConfig config;
  for (const std::string& field : ops::hardware_table(facts.hardware).must_be_written)
    config.written[field] = ops::kEager;
  if (!written.empty()) config.written[std::string(Op::kField)] = written;
  try {
    ops::Binder binder(config, facts);
    binder.bind<Op>({signature});
    const ops::BoundOps bound = binder.finish();
    for (const ops::Choice& choice : bound.choices())
      if (choice.op == Op::kName) return choice.provider;
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Where the table and the registered kernels of an op differ on some hardware, as sentences: a line that does
// not bind, by default or when it is written; a default that is another; a kernel that accepts what no line
// has.
template <class Op>
std::vector<std::string> differences(const RequiredKernels<Op>& table, const HardwareFacts& facts) {
  std::vector<std::string> all;
  for (const DType dtype : table.dtypes) {
    typename Op::Signature signature = table.usual;
    dtype_in(signature) = dtype;
    const auto add = [&](std::string_view what, std::string_view expected, std::string_view found) {
      if (expected != found)
        all.push_back(fmt::format("{} {} on {}, {}: expected '{}', found '{}'", Op::kName, to_string(dtype),
                                  facts.name, what, expected, found));
    };
    std::set<std::string, std::less<>> named;
    std::string_view best;
    for (const RequiredKernel<Op>& line : table.kernels) {
      if (!line.must_accept(signature, facts)) continue;
      named.emplace(line.provider);
      if (best.empty() && !line.only_when_written) best = line.provider;
      add("when written", line.provider, bound_provider<Op>(signature, facts, line.provider));
    }
    add("by default", best.empty() ? ops::kEager : best, bound_provider<Op>(signature, facts));
    add("when written", ops::kEager, bound_provider<Op>(signature, facts, ops::kEager));
    for (const auto& [provider, kernel] : ops::kernels<Op>().entries()) {
      if (kernel.compose != nullptr || kernel.hardware != facts.hardware || named.contains(provider))
        continue;
      add("not in the table", "",
          bound_provider<Op>(signature, facts, provider) == provider ? std::string_view(provider) : "");
    }
  }
  return all;
}

}  // namespace temper::op_testing
