#include "backends/gpu/lora_moe_experts.h"

#include "backends/cuda/experts/expert_products.h"
#include "ops/lora_moe_experts/lora_moe_experts.h"

namespace temper::backends {
namespace {

using ops::LoraMoeExperts;

class Products {
 public:
  Products(const ops::MoeExperts& op, const ExpertPlan& plan)
      : op_(op), plan_(plan), tiles_(row_tiles(plan)) {}

  Tensor narrow(const Tensor& rows, bool gathers, const Tensor& matrices, bool transpose, int64_t columns,
                MemoryTag tag) const {
    const Tensor low = rows_of_plan(plan_, op_.x, columns, tag);
    multiply_rows(plan_, tiles_, {rows, gathers}, matrices, transpose, low);
    return low;
  }
  void gradient(const RowColumns& wide, const RowColumns& low, bool transposed, float scale,
                const GradTarget& target) const {
    add_expert_gradient(plan_, transposed ? low : wide, transposed ? wide : low, target, scale);
  }
  void enter(const Tensor& gate_up, const Tensor& inner, const ExpertUpdate& update) const {
    const Tensor both = gate_up.defined() ? gate_up : rows_of_plan(plan_, op_.x, 2 * op_.width());
    multiply_rows(plan_, tiles_, {op_.x, true}, op_.gate_up, true, both, update);
    weighted_swiglu(plan_, both, op_.weights, inner);
  }
  void multiply(const Tensor& matrices, bool transpose, const Tensor& rows, const Tensor& d,
                const ExpertUpdate& update) const {
    multiply_rows(plan_, tiles_, {rows, false}, matrices, transpose, d, update);
  }
  void go_back(const Tensor& dy, const Tensor& gate_up, const Tensor& dgate_up, const Tensor& inner,
               const Tensor& dweights, const ExpertUpdate& update) const {
    const Tensor dinner = inner.defined() ? inner : rows_of_plan(plan_, op_.x, op_.width());
    multiply_rows(plan_, tiles_, {dy, true}, op_.down, false, dinner, update);
    weighted_swiglu_backward(plan_, gate_up, op_.weights, dinner, dgate_up, inner, dweights);
  }

 private:
  const ops::MoeExperts& op_;
  const ExpertPlan& plan_;
  Tensor tiles_;
};

using Steps = LoraMoeExpertsBy<Products>;

}  // namespace

void register_cuda_lora_moe_experts() {
  ops::kernels<LoraMoeExperts>().add(
      "cuda", expert_kernel<LoraMoeExperts>(refuse_experts, Steps::forward, Steps::backward));
}

}  // namespace temper::backends
