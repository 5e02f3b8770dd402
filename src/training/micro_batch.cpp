#include "training/micro_batch.h"

#include <algorithm>

namespace temper::training {

MicroBatch gather(const std::vector<data::PackedRow>& rows, size_t begin, size_t end) {
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
  batch.input = layers::make_input(ids, batch.lengths);
  batch.targets = Tensor::from(targets);
  return batch;
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
