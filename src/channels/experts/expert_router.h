#pragma once
#include "channels/experts/experts.h"
#include "layers/binding.h"
#include "ops/linear/linear.h"
#include "ops/lora_moe_experts/lora_moe_experts.h"
#include "ops/moe_router/moe_router.h"

namespace temper::channels {

// What an adapter adds to matrices of the model, for some rows; no slices where it leaves them as they are.
ops::ExpertsUpdate<Var> update_in(Tape& tape, const layers::AdapterRows& rows,
                                  const layers::BoundWeight& matrices);

// Chooses experts for each token, as a pass, its trace and adapters of the rows say.
class ExpertRouter {
 public:
  ExpertRouter(const layers::Binding& binding, const ExpertsConfig& config);

  // Of x [tokens, hidden]. What is chosen and counted goes to the pass's trace, of each adapter's tokens by
  // themselves where counts are wanted.
  ops::MoeRouter::Routes route(Tape& tape, const Var& x, const layers::Pass& pass) const;
  // What is added to the scores for the choice, [experts] float32; null: nothing.
  const layers::BoundWeight* choice_bias() const { return choice_bias_.exists() ? &choice_bias_ : nullptr; }
  bool asks_host() const { return !kernel_->repeats; }  // its kernel, in every step

 private:
  Var logits(Tape& tape, const Var& given, const layers::AdaptedRows& rows) const;
  template <class Widen>
  Var of_adapter(Tape& tape, const Var& x, const layers::AdapterRows& rows, const Widen& wide) const;
  ops::MoeRouter::Routes route_parts(Tape& tape, const Var& all, const ops::MoeRouter& op,
                                     const layers::Pass& pass, layers::RouterTrace::Router& trace) const;

  ops::Routing routing_;
  size_t place_;  // in traces
  bool float32_;
  layers::BoundWeight gate_, gate_bias_, choice_bias_;
  ops::Bound<ops::Linear> linear_;
  ops::Bound<ops::MoeRouter> kernel_;
};

}  // namespace temper::channels
