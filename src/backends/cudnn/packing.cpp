#include "backends/cudnn/packing.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "tensor/host_inputs.h"

namespace temper::backends::cudnn {
namespace {

// Scores that deterministic attention writes at once in backward; one document always gets what it needs.
constexpr int64_t kMostScores = int64_t{1} << 30;  // bytes

// The documents with queries, and how they are cut.
struct Cut {
  std::vector<PackedDocument> documents;
  int64_t length;  // of every document; 0: ragged
  std::vector<Part> parts;

  explicit Cut(const Packing& packing) {
    const ops::Attention op = op_of(packing);
    documents = packed_documents(op);
    length = common_length(documents, op);
    if (documents.empty()) return;
    if (!packing.cut)
      parts = {{0, documents.size()}};
    else if (length > 0)
      parts = cut_evenly(documents.size(), length, packing.heads, kMostScores);
    else
      parts = cudnn::cut(documents, packing.heads, kMostScores);
  }
};

Piece piece_of(const Cut& cut, Part part, const Packing& packing) {
  const PackedDocument &first = cut.documents[part.begin], &last = cut.documents[part.end - 1];
  const auto count = static_cast<int64_t>(part.end - part.begin);
  Piece piece;
  piece.first_query = first.query;
  piece.first_key = first.key;
  if (cut.length > 0) {
    piece.batch = count;
    piece.queries = piece.keys = cut.length;
    piece.first_document = static_cast<int64_t>(part.begin);
    return piece;
  }
  const Extent extent = extent_of(cut.documents, part);
  const int64_t queries = last.query + last.queries - first.query, keys = last.key + last.keys - first.key;
  piece.ragged = true;
  piece.batch = rounded_count(count);
  piece.queries = extent.queries;
  piece.keys = extent.keys;
  piece.bottom_right = !extent.square;
  piece.total_queries = rounded_length(queries);
  piece.total_keys = rounded_length(keys);
  // Plans also place accumulators for all heads by these offsets.
  const int64_t widest = std::max(packing.head_dim, packing.value_dim);
  piece.wide_offsets = std::max(queries, keys) * packing.heads * widest > INT32_MAX;
  return piece;
}

Pieces look_at(const Packing& packing) {
  const Cut cut(packing);
  Pieces pieces;
  int64_t seen = 0;
  for (const Part part : cut.parts) pieces.all.push_back(piece_of(cut, part, packing));
  for (const PackedDocument& document : cut.documents) seen += document.keys;
  pieces.seen = seen == op_of(packing).starts_k().back();
  return pieces;
}

// One number of each document and `count` in all; documents that pad the batch are empty and at the
// end.
enum class List { kStartsQ, kStartsK, kQueries, kKeys };
void write_list(const Packing& packing, size_t index, List list, int64_t factor, std::vector<int64_t>& to) {
  const Cut cut(packing);
  const Part part = cut.parts[index];
  const PackedDocument &first = cut.documents[part.begin], &last = cut.documents[part.end - 1];
  const int64_t ends[] = {last.query + last.queries - first.query, last.key + last.keys - first.key, 0, 0};
  std::fill(to.begin(), to.end(), ends[static_cast<size_t>(list)] * factor);
  for (size_t d = part.begin; d < part.end; ++d) {
    const PackedDocument& document = cut.documents[d];
    const int64_t numbers[] = {document.query - first.query, document.key - first.key, document.queries,
                               document.keys};
    to[d - part.begin] = numbers[static_cast<size_t>(list)] * factor;
  }
}

}  // namespace

Pieces pieces_of(const Packing& packing) {
  Pieces found = look_at(packing);
  take_for_granted(name_of(packing), [packing, found] { return look_at(packing) == found; });
  return found;
}

Lists lists_of(const Packing& packing, size_t index, const Piece& piece, Device device) {
  const auto list = [&](List which, int64_t factor, bool wide) {
    const bool starts = which == List::kStartsQ || which == List::kStartsK;
    const int64_t count = piece.batch + (starts ? 1 : 0);
    const std::string name =
        fmt::format("{}, {} of {} by {}", name_of(packing), static_cast<int>(which), index, factor);
    const auto write = [=](std::byte* to) {
      std::vector<int64_t> values(static_cast<size_t>(count));
      write_list(packing, index, which, factor, values);
      if (wide) return void(std::memcpy(to, values.data(), values.size() * sizeof(int64_t)));
      const std::vector<int32_t> narrow(values.begin(), values.end());
      std::memcpy(to, narrow.data(), narrow.size() * sizeof(int32_t));
    };
    return from_host(name, {count}, wide ? DType::kI64 : DType::kI32, device, write);
  };
  const int64_t width = packing.heads * packing.head_dim, kv_width = packing.kv_heads * packing.head_dim;
  Lists lists{list(List::kQueries, 1, false),
              list(List::kKeys, 1, false),
              list(List::kStartsQ, width, piece.wide_offsets),
              list(List::kStartsK, kv_width, piece.wide_offsets),
              list(List::kStartsQ, packing.heads, piece.wide_offsets),
              {},
              {}};
  if (packing.value_dim != packing.head_dim) {
    lists.starts_y = list(List::kStartsQ, packing.heads * packing.value_dim, piece.wide_offsets);
    lists.starts_v = list(List::kStartsK, packing.kv_heads * packing.value_dim, piece.wide_offsets);
  }
  return lists;
}

}  // namespace temper::backends::cudnn
