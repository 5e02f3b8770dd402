#pragma once
#include <span>
#include <string_view>

#include "tensor/tensor.h"

namespace temper::ops {

// The documents of a row for ops that carry a state from token to token. On the CPU, whatever the device.
struct Documents {
  Tensor starts;  // [documents + 1] int32, from 0 to tokens, not decreasing (cu_seqlens)
  // [documents] int32: the document before it that a document continues, whose final state is its initial
  // one, or -1. Several may continue one, which continues none itself. Undefined: none continues another.
  Tensor continued = {};

  int64_t count() const { return starts.numel() - 1; }
  int64_t start(int64_t document) const { return starts.values<int32_t>()[static_cast<size_t>(document)]; }
  int64_t length(int64_t document) const { return start(document + 1) - start(document); }
  int64_t continues(int64_t document) const {  // or -1
    return continued.defined() ? continued.values<int32_t>()[static_cast<size_t>(document)] : -1;
  }
};

// An Error "[op] …" where they are not what is said above, of a row of `tokens` tokens.
void check_documents(std::string_view op, const Documents& documents, int64_t tokens);

}  // namespace temper::ops
