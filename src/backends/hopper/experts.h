#pragma once
#include "autograd/grad_slot.h"
#include "backends/gpu/lora_moe_experts.h"
#include "backends/hopper/product_kernel.h"
#include "ops/moe_experts/moe_experts.h"

namespace temper::backends::hopper {

struct ExpertProductArguments;

// Why these steps are not for a mixture.
ops::Refusal refuse_experts(const ops::MoeExperts::Signature& signature, const HardwareFacts& facts);

// The steps of moe_experts of one call (ops/moe_experts), in the order of the plan's rows; all tensors are
// bfloat16, those of `rows` compact. An update's `low` and matrices begin at whole chunks. On a device that
// only counts they compute nothing.
class Experts {
 public:
  Experts(const ops::MoeExperts& op, ExpertPlan plan);  // op must outlive it

  Device device() const { return device_; }
  const ExpertPlan& plan() const { return plan_; }
  Tensor rows_of(int64_t columns, MemoryTag tag = MemoryTag::kWorkspace, DType dtype = DType::kBF16) const;
  Tensor items() const;  // arguments of the products below

  // y [rows, width] = weight · swiglu of d [rows, 2 width] = x gate_upᵀ; d may be undefined.
  void multiply_gate_up(const Tensor& items, const Tensor& d, const Tensor& y,
                        const ExpertUpdate& update = {}) const;
  // dgate_up [rows, 2 width] from dy [tokens, hidden] and gate_up as forward made it; y as forward made it,
  // and parts of the weights' gradients (parts_of_dots), where they are defined.
  void differentiate_gate(const Tensor& items, const Tensor& dy, const Tensor& gate_up,
                          const Tensor& dgate_up, const Tensor& y, const Tensor& dots,
                          const ExpertUpdate& update = {}) const;
  // d = rows matrixᵀ, or rows matrix, with each expert's matrix.
  void multiply(const Tensor& items, const Tensor& matrices, bool transpose, const Tensor& rows,
                const Tensor& d, const ExpertUpdate& update = {}) const;
  // target (+)= Σ rowsᵀ given, or Σ givenᵀ rows, of each expert; given [tokens, ·], or in the order of rows.
  enum class Given { kTokens, kRows };
  void add_gradient(const Tensor& rows, const Tensor& given, bool transposed, const GradTarget& target,
                    Given order = Given::kTokens) const;

 private:
  bool computes() const;
  ExpertProductArguments arguments(const Tensor& items, const Tensor& matrices, bool transpose,
                                   const Tensor& gathered, int64_t columns, int64_t depth) const;
  void launch(ExpertProductArguments& g, bool transpose, Gate gate, const ExpertUpdate& update) const;

  const ops::MoeExperts& op_;
  ExpertPlan plan_;
  Device device_;
  int64_t rows_;
};

}  // namespace temper::backends::hopper
