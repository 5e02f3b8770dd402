#pragma once
#include "backends/cudnn/documents.h"
#include "backends/cudnn/plan.h"

// A call of attention as calls of plans.
namespace temper::backends::cudnn {

// Some documents for one plan. Equal pieces are the same launches; what is different then, the ragged
// documents' places and lengths, plans read on the device.
struct Piece {
  bool ragged = false;
  int64_t batch = 0, queries = 0, keys = 0;  // as the plan has them
  bool bottom_right = false;                 // ragged: some documents have more keys than queries
  bool wide_offsets = false;                 // ragged: they do not fit into 32 bits
  int64_t total_queries = 0, total_keys = 0;
  int64_t first_query = 0, first_key = 0;  // among all tokens
  int64_t first_document = 0;              // plain: where its logs begin
  bool operator==(const Piece&) const = default;
};
// All documents with queries. `seen`: whether they have every key.
struct Pieces {
  std::vector<Piece> all;
  bool seen = true;
  bool operator==(const Pieces&) const = default;
};
// Says in work that may run again that it takes them for granted.
Pieces pieces_of(const Packing& packing);

// The lists that the plan of a ragged piece reads, on the device.
struct Lists {
  Tensor queries, keys;                    // [batch] int32
  Tensor starts_q, starts_k, starts_logs;  // [batch + 1] int32 or int64, in elements
  Tensor starts_y, starts_v;               // [batch + 1], too; undefined where values are as wide as keys
};
Lists lists_of(const Packing& packing, size_t index, const Piece& piece, Device device);

}  // namespace temper::backends::cudnn
