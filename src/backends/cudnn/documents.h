#pragma once
#include <cstdint>
#include <vector>

#include "ops/attention/attention.h"

// How packed documents become the few shapes that plans are built for. No device takes part in this.
namespace temper::backends::cudnn {

// Where a document's tokens begin and how many they are.
struct Document {
  int64_t query = 0, queries = 0, key = 0, keys = 0;
};

// Those that have queries: the others add nothing.
std::vector<Document> documents_of(const ops::Attention& op);

// The length of every document where all have the same, as many keys as queries, and nothing stands between
// them: such documents are the rows of a plain [documents, length] batch. 0 where they are not, and for
// lengths that would need a plan of their own.
int64_t common_length(const std::vector<Document>& documents, const ops::Attention& op);

// What a plan's longest document, its number of documents and its number of tokens are rounded up to.
int64_t rounded_length(int64_t length);
int64_t rounded_count(int64_t count);

// Documents [begin, end).
struct Part {
  size_t begin = 0, end = 0;
  bool operator==(const Part&) const = default;
};

// Parts whose scores, as a plan lays them out, take at most `bytes`; one document may take more.
std::vector<Part> cut(const std::vector<Document>& documents, int64_t heads, int64_t bytes);
// The same for documents of one length, in a plain batch; parts differ by at most one document.
std::vector<Part> cut_evenly(size_t count, int64_t length, int64_t heads, int64_t bytes);

// The longest of each kind, rounded, and whether queries and keys agree in every document.
struct Extent {
  int64_t queries = 0, keys = 0;
  bool square = true;
};
Extent extent_of(const std::vector<Document>& documents, Part part);

}  // namespace temper::backends::cudnn
