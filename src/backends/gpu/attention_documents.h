#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "ops/attention/attention.h"

// The documents of a call of attention, as kernels on GPUs cut them. No device takes part in this.
namespace temper::backends {

// Where a document's tokens begin and how many they are.
struct PackedDocument {
  int64_t query = 0, queries = 0, key = 0, keys = 0;
};

// Those that have queries: the others add nothing.
std::vector<PackedDocument> packed_documents(const ops::Attention& op);

// The length of every document where all have the same, as many keys as queries, and nothing stands between
// them: such documents are the rows of a plain [documents, length] batch. 0 where they are not, and for
// lengths that would need a plan of their own. What forward keeps of the softmax's denominators
// (ops::Attention::Output::lse) is [documents, heads, length] for a plain batch and [tokens, heads]
// otherwise.
int64_t common_length(const std::vector<PackedDocument>& documents, const ops::Attention& op);

// What is known of a call without its tensors, so that it can be looked at again when the documents change.
struct Packing {
  Tensor cu_seqlens_q, cu_seqlens_k;  // [documents + 1], on the CPU
  int64_t heads = 0, kv_heads = 0, head_dim = 0, value_dim = 0;
  bool cut = false;  // so that the scores of a deterministic pass need not all exist at once
};
Packing packing_of(const ops::Attention& op, bool cut);
ops::Attention op_of(const Packing& packing);  // without q, k and v
std::string name_of(const Packing& packing);   // of what is brought to the device for it

}  // namespace temper::backends
