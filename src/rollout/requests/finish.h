#pragma once
#include "rollout/requests/request.h"

namespace temper::rollout {

const char* name_of(Finish finish);  // for files: "stop", "length", "context", "cancelled" or "failed"

}  // namespace temper::rollout
