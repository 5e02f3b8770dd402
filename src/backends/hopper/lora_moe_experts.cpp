// The experts of a frozen mixture with an adapter's updates, which continue the sums of the products with the
// frozen matrices (expert_products.h).
#include "backends/gpu/lora_moe_experts.h"

#include "backends/hopper/expert_products.h"
#include "backends/hopper/experts.h"
#include "backends/hopper/narrow_experts.h"
#include "ops/lora_moe_experts/lora_moe_experts.h"

namespace temper::backends::hopper {
namespace {

using ops::LoraMoeExperts;

class Products {
 public:
  Products(const ops::MoeExperts& op, const ExpertPlan& plan)
      : experts_(op, plan), items_(experts_.items()), width_(op.width()) {}

  Tensor narrow(const Tensor& rows, bool gathers, const Tensor& matrices, bool transpose, int64_t columns,
                MemoryTag tag) const {
    const Tensor low = experts_.rows_of(columns, tag);
    narrow_product(experts_.plan(), with_whole_chunks(rows), gathers, with_whole_chunks(matrices), transpose,
                   low);
    return low;
  }
  void gradient(const RowColumns& wide, const RowColumns& low, bool transposed, float scale,
                const GradTarget& target) const {
    const RowColumns whole{with_whole_chunks(wide.rows), wide.gathers, wide.column, wide.columns};
    narrow_gradient(experts_.plan(), whole, low, transposed, scale, target);
  }
  void enter(const Tensor& gate_up, const Tensor& inner, const ExpertUpdate& update) const {
    experts_.multiply_gate_up(items_, gate_up, inner, update);
  }
  void multiply(const Tensor& matrices, bool transpose, const Tensor& rows, const Tensor& d,
                const ExpertUpdate& update) const {
    experts_.multiply(items_, matrices, transpose, rows, d, {update.low, with_whole_chunks(update.matrices)});
  }
  void go_back(const Tensor& dy, const Tensor& gate_up, const Tensor& dgate_up, const Tensor& inner,
               const Tensor& dweights, const ExpertUpdate& update) const {
    const Tensor dots = dweights.defined()
                            ? experts_.rows_of(parts_of_dots(width_), MemoryTag::kWorkspace, DType::kF32)
                            : Tensor();
    experts_.differentiate_gate(items_, dy, gate_up, dgate_up, inner, dots,
                                {update.low, with_whole_chunks(update.matrices)});
    if (dweights.defined()) sum_parts(experts_.plan(), dots, dweights);
  }

 private:
  Experts experts_;
  Tensor items_;
  int64_t width_;
};

using Steps = LoraMoeExpertsBy<Products>;

}  // namespace

void register_hopper_lora_moe_experts() {
  ops::kernels<LoraMoeExperts>().add_before(
      "cuda", "hopper", expert_kernel<LoraMoeExperts>(refuse_experts, Steps::forward, Steps::backward));
}

}  // namespace temper::backends::hopper
