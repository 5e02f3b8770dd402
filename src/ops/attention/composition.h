#pragma once
#include "ops/attention/attention.h"
#include "ops/attention/decode_attention.h"

namespace temper::ops {

Attention::Compose compose_attention;
DecodeAttention::Compose compose_decode_attention;

}  // namespace temper::ops
