#pragma once
#include "ops/causal_conv1d/causal_conv1d.h"

namespace temper::ops {

CausalConv1d::Compose compose_causal_conv1d;
CausalConv1dUpdate::Compose compose_causal_conv1d_update;

}  // namespace temper::ops
