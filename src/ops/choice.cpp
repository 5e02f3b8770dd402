#include "ops/choice.h"

#include "base/error.h"
#include "base/text.h"

namespace temper::ops {

std::string describe_shortfall(const Choice& choice) {
  const Shortfall& behind = choice.shortfall.value();
  if (behind.provider.empty())
    return fmt::format("{} runs on '{}', a composition: {}", choice.op, choice.provider, behind.reason);
  return fmt::format("{} runs on '{}', not on '{}', the best kernel for this hardware, which {}{}", choice.op,
                     choice.provider, behind.provider, behind.reason,
                     behind.cost.empty() ? "" : "; without it " + behind.cost);
}

void refuse_shortfalls(const std::vector<Choice>& choices) {
  std::vector<std::string> lines;
  for (const Choice& choice : choices)
    if (choice.shortfall) lines.push_back(describe_shortfall(choice));
  if (lines.empty()) return;
  fail(
      "[model.strict_kernels] {}. Bring what is missing, write the kernels that you want under "
      "model.ops_implementation, or set model.strict_kernels to false",
      join(lines, "; "));
}

}  // namespace temper::ops
