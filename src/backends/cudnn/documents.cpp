#include "backends/cudnn/documents.h"

#include <algorithm>
#include <bit>

namespace temper::backends::cudnn {
namespace {

constexpr int64_t kTile = 128;  // what kernels cut queries and keys into
constexpr int64_t kScoreBytes = 2;

int64_t up(int64_t value, int64_t to) { return (value + to - 1) / to * to; }

}  // namespace

int64_t rounded_length(int64_t length) {
  if (length <= kTile) return kTile;
  if (length <= 2048) return up(length, 256);
  // Four steps to each doubling.
  const auto octave = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(length))) / 2;
  return up(length, octave / 4);
}

int64_t rounded_count(int64_t count) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(count, 1))));
}

Extent extent_of(const std::vector<PackedDocument>& documents, Part part) {
  Extent extent;
  for (size_t d = part.begin; d < part.end; ++d) {
    extent.queries = std::max(extent.queries, documents[d].queries);
    extent.keys = std::max(extent.keys, documents[d].keys);
    extent.square = extent.square && documents[d].queries == documents[d].keys;
  }
  return {rounded_length(extent.queries), rounded_length(extent.keys), extent.square};
}

std::vector<Part> cut(const std::vector<PackedDocument>& documents, int64_t heads, int64_t bytes) {
  std::vector<Part> parts;
  for (size_t d = 0; d < documents.size(); ++d) {
    if (!parts.empty()) {
      const Part longer{parts.back().begin, d + 1};
      const Extent extent = extent_of(documents, longer);
      const int64_t count = rounded_count(static_cast<int64_t>(longer.end - longer.begin));
      if (count * heads * extent.queries * extent.keys * kScoreBytes <= bytes) {
        parts.back() = longer;
        continue;
      }
    }
    parts.push_back({d, d + 1});
  }
  return parts;
}

std::vector<Part> cut_evenly(size_t count, int64_t length, int64_t heads, int64_t bytes) {
  const int64_t each = heads * length * length * kScoreBytes;
  const auto most = static_cast<size_t>(std::max<int64_t>(1, bytes / each));
  const size_t num_parts = (count + most - 1) / most;
  std::vector<Part> parts;
  for (size_t i = 0; i < num_parts; ++i)
    parts.push_back({count * i / num_parts, count * (i + 1) / num_parts});
  return parts;
}

}  // namespace temper::backends::cudnn
