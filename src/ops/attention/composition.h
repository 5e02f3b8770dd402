#pragma once
#include "ops/attention/attention.h"
#include "ops/attention/decode_attention.h"
#include "ops/attention/paged_attention.h"

namespace temper::ops {

Attention::Compose compose_attention;
DecodeAttention::Compose compose_decode_attention;
PagedAttention::Compose compose_paged_attention;

// Of any of them, beside q [·, heads, ·].
void check_sinks(std::string_view name, const Tensor& sinks, const Tensor& q);

}  // namespace temper::ops
