#include "training/micro_batch.h"

#include <algorithm>
#include <bit>

namespace temper::training {
namespace {

// Ids, targets and lengths with what fills up.
void fill_tokens(std::vector<int32_t>& ids, std::vector<int32_t>& targets, std::vector<int32_t>& lengths) {
  const size_t whole = (ids.size() + kTokenStep - 1) / kTokenStep * kTokenStep;
  // No longer than the documents of the data: positions end somewhere.
  const int32_t longest = *std::max_element(lengths.begin(), lengths.end());
  for (auto left = static_cast<int32_t>(whole - ids.size()); left > 0; left -= lengths.back())
    lengths.push_back(std::min(left, longest));
  ids.resize(whole, 0);
  targets.resize(whole, data::kIgnore);
  lengths.resize(std::bit_ceil(lengths.size()), 0);
}

}  // namespace

MicroBatch gather(const std::vector<data::PackedRow>& rows, size_t begin, size_t end, bool fill_up) {
  std::vector<int32_t> ids, targets;
  MicroBatch batch;
  for (size_t i = begin; i < end; ++i) {
    const data::PackedRow& row = rows[i];
    ids.insert(ids.end(), row.ids.begin(), row.ids.end());
    targets.insert(targets.end(), row.targets.begin(), row.targets.end());
    auto first = row.targets.begin();
    for (size_t d = 0; d < row.document_lengths.size(); ++d) {
      const int64_t length = row.document_lengths[d];
      batch.lengths.push_back(static_cast<int32_t>(length));
      const int64_t ignored = std::count(first, first + length, data::kIgnore);
      batch.documents.push_back({length, length - ignored, d < row.sources.size() ? row.sources[d] : 0});
      first += length;
    }
  }
  batch.tokens = static_cast<int64_t>(ids.size());
  std::vector<int32_t> lengths = batch.lengths;
  if (fill_up) fill_tokens(ids, targets, lengths);
  batch.input = layers::make_input(ids, lengths);
  batch.targets = Tensor::from(targets);
  return batch;
}

bool same_shape(const MicroBatch& a, const MicroBatch& b) {
  return a.input.ids.shape() == b.input.ids.shape() &&
         a.input.cu_seqlens.shape() == b.input.cu_seqlens.shape();
}

void assign(MicroBatch& to, const MicroBatch& from) {
  to.input.ids.copy_from(from.input.ids);
  to.input.positions.copy_from(from.input.positions);
  to.input.cu_seqlens.copy_from(from.input.cu_seqlens);
  to.targets.copy_from(from.targets);
  to.lengths = from.lengths;
  to.documents = from.documents;
  to.tokens = from.tokens;
}

std::vector<std::pair<size_t, size_t>> cut_micro_batches(const std::vector<data::PackedRow>& rows,
                                                         int64_t max_tokens) {
  std::vector<std::pair<size_t, size_t>> groups;
  int64_t tokens = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t length = rows[i].size();
    if (groups.empty() || (max_tokens > 0 && tokens + length > max_tokens)) {
      groups.emplace_back(i, i);
      tokens = 0;
    }
    groups.back().second = i + 1;
    tokens += length;
  }
  return groups;
}

}  // namespace temper::training
