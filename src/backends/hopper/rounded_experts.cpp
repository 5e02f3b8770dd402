// The experts of a mixture that read rounded rows, by the products of moe_experts, for compute
// capability 9.0.
#include "backends/gpu/rounded_experts.h"

#include "backends/hopper/experts.h"
#include "ops/rounded_experts/rounded_experts.h"

namespace temper::backends::hopper {
namespace {

using ops::RoundedExperts;

class RoundedProducts {
 public:
  RoundedProducts(const ops::MoeExperts& op, const ExpertPlan& plan)
      : experts_(op, plan), items_(experts_.items()) {}

  void multiply(const Tensor& matrices, bool transpose, const Tensor& rows, const Tensor& d) const {
    experts_.multiply(items_, matrices, transpose, rows, d);
  }
  void multiply_tokens(const Tensor& matrices, bool transpose, const Tensor& tokens, const Tensor& d) const {
    multiply(matrices, transpose, gather_choices(experts_.plan(), tokens), d);
  }
  void gate_up_gradient(const Tensor& dgate_up, const Tensor& rows, const GradTarget& target) const {
    experts_.add_gradient(dgate_up, rows, false, target, Experts::Given::kRows);
  }
  void down_gradient(const Tensor& dy, const Tensor& rows, const GradTarget& target) const {
    experts_.add_gradient(rows, dy, true, target);
  }

 private:
  Experts experts_;
  Tensor items_;
};

}  // namespace

void register_hopper_rounded_experts() {
  ops::kernels<RoundedExperts>().add_before("cuda", "hopper",
                                            RoundedExpertsBy<RoundedProducts>::kernel<refuse_experts>());
}

}  // namespace temper::backends::hopper
