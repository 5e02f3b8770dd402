#pragma once
#include <functional>

#include "ops/attention/attention.h"

namespace temper::backends::cudnn {

// Whether backward needs this: cuDNN's gradients of packed documents with heads wider than 128 are wrong
// (9.14: those of k and v for any, of q beyond 128 tokens), those of a plain batch are right.
bool is_padded_backward(const ops::Attention& op);

// Backward document by document: each is copied into a plain batch of one, of as many queries as keys,
// rounded up to few lengths. Tokens that fill it up are zero, stand after all keys, or before all queries,
// and have no gradient.
using PlainBackward = std::function<ops::Attention::Grads(const ops::Attention&,
                                                          const ops::Attention::Output&, const Tensor& dy)>;
ops::Attention::Grads padded_backward(const ops::Attention& op, const ops::Attention::Output& out,
                                      const Tensor& dy, const PlainBackward& backward);

}  // namespace temper::backends::cudnn
