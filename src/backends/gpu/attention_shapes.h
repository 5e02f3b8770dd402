#pragma once
#include "ops/attention/attention.h"

namespace temper::backends {

// Why attention on tensor cores with packed documents (cuDNN's, and what is made for its logs of
// denominators) does not take a signature on a GPU; nothing where it does. The same whether or not cuDNN is
// in this build.
ops::Refusal refuse_packed_attention(const ops::Attention::Signature& s, const HardwareFacts& facts);

}  // namespace temper::backends
