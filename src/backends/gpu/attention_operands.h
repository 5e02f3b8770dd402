#pragma once
#include "ops/attention/attention.h"

// What kernels for attention read and write.
namespace temper::backends {

// As it is, or a compact copy where its memory and strides are no multiples of 16 bytes, or `compact` asks
// for one.
Tensor readable(const Tensor& tensor, bool compact);
// Memory from a row on.
void* rows(const Tensor& tensor, int64_t first);

// Not yet written; `joined`: views of one buffer, where there are as many keys as queries and all are of one
// width.
ops::Attention::Grads empty_gradients(const ops::Attention& op, bool joined);

}  // namespace temper::backends
