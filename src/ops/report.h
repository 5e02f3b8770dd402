#pragma once
#include "base/json/json.h"
#include "ops/selection.h"

namespace temper::ops {

// Each choice with its reason, every other kernel with what keeps it from running here, and the names that a
// configuration may use for them.
std::string explain(const std::vector<Choice>& choices, const HardwareFacts& facts);
Json explain_json(const BoundOps& ops, const HardwareFacts& facts);

// The kernels by provider, on one line: "onednn (attn, linear), simd (adamw)". Fields that were written and
// that are unused are left out.
std::string summarize(const std::vector<Choice>& choices);

// A warning for each default that is not the best there is for the hardware, once in a process.
void warn_of_shortfalls(const std::vector<Choice>& choices);

// An Error of a defect that names each op of a module whose kernel is another one now, and both kernels.
void check_unchanged(const std::vector<ModuleKernel>& before, const std::vector<ModuleKernel>& now);

// All ops and kernels of this build by hardware, as a Markdown table.
std::string kernel_table();

}  // namespace temper::ops
