#pragma once
#include "ops/moe_experts/moe_experts.h"

// The experts of so few tokens that reading the chosen matrices is all that takes time, as when text is
// generated: without a plan, and each choice by itself. Sums have the order, and results the bits, that they
// have among many tokens (expert_products.h).
namespace temper::backends::hopper {

bool are_few_choices(const ops::MoeExperts& op);
// y [tokens, hidden].
void few_choices(const ops::MoeExperts& op, const Tensor& y);

}  // namespace temper::backends::hopper
