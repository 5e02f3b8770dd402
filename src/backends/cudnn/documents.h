#pragma once
#include <cstdint>
#include <vector>

#include "backends/gpu/attention_documents.h"

// How packed documents become the few shapes that plans are built for. No device takes part in this.
namespace temper::backends::cudnn {

// What a plan's longest document, its number of documents and its number of tokens are rounded up to.
int64_t rounded_length(int64_t length);
int64_t rounded_count(int64_t count);

// Documents [begin, end).
struct Part {
  size_t begin = 0, end = 0;
  bool operator==(const Part&) const = default;
};

// Parts whose scores, as a plan lays them out, take at most `bytes`; one document may take more.
std::vector<Part> cut(const std::vector<PackedDocument>& documents, int64_t heads, int64_t bytes);
// The same for documents of one length, in a plain batch; parts differ by at most one document.
std::vector<Part> cut_evenly(size_t count, int64_t length, int64_t heads, int64_t bytes);

// The longest of each kind, rounded, and whether queries and keys agree in every document.
struct Extent {
  int64_t queries = 0, keys = 0;
  bool square = true;
};
Extent extent_of(const std::vector<PackedDocument>& documents, Part part);

}  // namespace temper::backends::cudnn
