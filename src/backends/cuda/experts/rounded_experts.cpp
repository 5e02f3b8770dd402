#include "backends/gpu/rounded_experts.h"

#include "backends/cuda/experts/expert_products.h"
#include "ops/rounded_experts/rounded_experts.h"

namespace temper::backends {
namespace {

using ops::RoundedExperts;

class RoundedProducts {
 public:
  RoundedProducts(const ops::MoeExperts&, const ExpertPlan& plan) : plan_(plan), tiles_(row_tiles(plan)) {}

  void multiply(const Tensor& matrices, bool transpose, const Tensor& rows, const Tensor& d) const {
    multiply_rows(plan_, tiles_, {rows, false}, matrices, transpose, d);
  }
  void multiply_tokens(const Tensor& matrices, bool transpose, const Tensor& tokens, const Tensor& d) const {
    multiply_rows(plan_, tiles_, {tokens, true}, matrices, transpose, d);
  }
  void gate_up_gradient(const Tensor& dgate_up, const Tensor& rows, const GradTarget& target) const {
    add_expert_gradient(plan_, all_columns(dgate_up, false), all_columns(rows, false), target);
  }
  void down_gradient(const Tensor& dy, const Tensor& rows, const GradTarget& target) const {
    add_expert_gradient(plan_, all_columns(dy, true), all_columns(rows, false), target);
  }

 private:
  const ExpertPlan& plan_;
  Tensor tiles_;
};

}  // namespace

void register_cuda_rounded_experts() {
  ops::kernels<RoundedExperts>().add("cuda", RoundedExpertsBy<RoundedProducts>::kernel<refuse_experts>());
}

}  // namespace temper::backends
