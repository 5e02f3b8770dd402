#pragma once
#include "ops/attention/attention.h"

// What kernels for attention read and write.
namespace temper::backends::cudnn {

// As it is, or a compact copy where its memory and strides are no multiples of 16 bytes, or `compact` asks
// for one.
Tensor readable(const Tensor& tensor, bool compact);
// Memory from a row on.
void* rows(const Tensor& tensor, int64_t first);

// Not yet written; `joined`: views of one buffer, where there are as many keys as queries.
ops::Attention::Grads empty_gradients(const ops::Attention& op, bool joined);

// Attention through cuDNN, forward. Logs of the softmax's denominators are [documents, heads, length] for
// documents of one length in a plain batch (common_length) and [tokens, heads] otherwise.
ops::Attention::Output forward(const ops::Attention& op, bool want_lse);

}  // namespace temper::backends::cudnn
