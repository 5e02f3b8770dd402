#pragma once
#include "mixers/gated_delta/gated_delta.h"

namespace temper::mixers {

inline constexpr const char* kGatedDelta = "delta";

std::unique_ptr<layers::BoundMixer> bind_gated_delta(const GatedDeltaConfig& config,
                                                     const layers::Binding& binding);

}  // namespace temper::mixers
