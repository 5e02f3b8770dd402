#pragma once
#include "losses/policy.h"

namespace temper::losses {

// An Error "[policy] …" for an answer that does not fit the policy or the update (policy_loss in policy.h).
void check(const Policy& policy, const PolicyAnswer& answer, const PolicyUpdate& update, size_t gradients);

}  // namespace temper::losses
