#include "losses/policy_checks.h"

#include <cmath>

#include "base/error.h"

namespace temper::losses {

// Comparisons are written so that NaN fails them.
void check(const Policy& policy) {
  if (!(policy.clip_low >= 0 && policy.clip_low <= 1))
    fail("[policy] clip_low is {}; ratios are clipped to 1 - clip_low, so it must be from 0 to 1",
         policy.clip_low);
  if (!(policy.clip_high >= 0)) fail("[policy] clip_high is {}; it must be 0 or more", policy.clip_high);
  if (policy.dual_clip != 0 && !(policy.dual_clip > 1))
    fail("[policy] dual_clip is {}; it must be above 1, or 0 for none", policy.dual_clip);
  if (policy.dual_clip != 0 && policy.kind != PolicyKind::kClip)
    fail("[policy] dual_clip is {}, but only the clipped loss has one; cispo limits all ratios by ratio_max",
         policy.dual_clip);
  if (!(policy.ratio_max > 0)) fail("[policy] ratio_max is {}; it must be above 0", policy.ratio_max);
  if (!(policy.beta >= 0 && std::isfinite(policy.beta)))
    fail("[policy] beta is {}; it must be a finite number that is not negative", policy.beta);
  if (!(policy.correction_cap > 0))
    fail("[policy] correction_cap is {}; it must be above 0", policy.correction_cap);
  if (!(policy.correction_low >= 0 && policy.correction_low <= policy.correction_cap))
    fail("[policy] correction_low is {}; it must be from 0 to correction_cap, which is {}",
         policy.correction_low, policy.correction_cap);
}

void check(const Policy& policy, const PolicyAnswer& answer, const PolicyUpdate& update, size_t gradients) {
  const size_t tokens = answer.now.size();
  const auto expect = [tokens](const char* what, size_t found) {
    if (found != tokens)
      fail("[policy] an answer has {} values of `{}` and {} of `now`; each token needs one of both", found,
           what, tokens);
  };
  expect("old", answer.old.size());
  expect("advantages", answer.advantages.size());
  expect("gradients", gradients);
  if (policy.beta != 0 || !answer.reference.empty()) expect("reference", answer.reference.size());
  if (policy.correction != Correction::kNone || !answer.rollout.empty())
    expect("rollout", answer.rollout.size());
  if (!answer.kept.empty()) {
    expect("kept", answer.kept.size());
    expect("rollout", answer.rollout.size());
  }
  const auto longest = static_cast<int64_t>(tokens);
  if (update.answers < 1 || update.tokens < longest)
    fail(
        "[policy] the update has {} answers of {} tokens, less than this answer of {} tokens; give the "
        "counts of the "
        "whole update",
        update.answers, update.tokens, tokens);
  if (policy.mean == PolicyMean::kConstant && update.most_tokens < longest)
    fail("[policy] an answer has {} tokens, more than the {} of the longest answer allowed", tokens,
         update.most_tokens);
}

}  // namespace temper::losses
