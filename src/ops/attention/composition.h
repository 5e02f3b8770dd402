#pragma once
#include "ops/attention/attention.h"
#include "ops/attention/decode_attention.h"

namespace temper::ops {

Attention::Compose compose_attention;
DecodeAttention::Compose compose_decode_attention;

// Of either op, beside q [·, heads, ·].
void check_sinks(std::string_view name, const Tensor& sinks, const Tensor& q);

}  // namespace temper::ops
