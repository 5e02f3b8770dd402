#include "backends/onednn/choices_by_expert.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "backends/onednn/tiles/blocks.h"
#include "backends/onednn/tiles/task_memory.h"
#include "base/threads/threads.h"

namespace temper::backends {

ChoicesByExpert::ChoicesByExpert(const Tensor& ids, int64_t experts)
    : top_k_(ids.dim(1)), starts_(static_cast<size_t>(experts + 1)) {
  const auto list = ids.values<int32_t>();
  for (const int32_t id : list) ++starts_[static_cast<size_t>(id) + 1];
  std::partial_sum(starts_.begin(), starts_.end(), starts_.begin());
  std::vector<int32_t> next(starts_.begin(), starts_.end() - 1);
  choices_.resize(list.size());
  rows_.resize(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    rows_[i] = next[static_cast<size_t>(list[i])]++;
    choices_[static_cast<size_t>(rows_[i])] = static_cast<int32_t>(i);
  }
}

std::vector<ChoicesByExpert::Piece> ChoicesByExpert::pieces(int64_t most) const {
  std::vector<Piece> all;
  for (int64_t e = 0; e + 1 < static_cast<int64_t>(starts_.size()); ++e)
    for (int64_t i = 0, parts = (of(e) + most - 1) / most; i < parts; ++i) {
      const int64_t begin = of(e) * i / parts, end = of(e) * (i + 1) / parts;
      all.push_back({e, first(e) + begin, end - begin});
    }
  return all;
}

void ChoicesByExpert::gather(const Tensor& x, int64_t first, int64_t count, void* to) const {
  const int64_t bytes = x.dim(1) * size_of(x.dtype());
  const auto* const from = static_cast<const std::byte*>(x.raw());
  auto* at = static_cast<std::byte*>(to);
  for (int64_t row = first; row < first + count; ++row, at += bytes)
    std::memcpy(at, from + token(row) * bytes, static_cast<size_t>(bytes));
}

void ChoicesByExpert::sum(const Tensor& results, const Tensor& y) const {
  constexpr int64_t kElements = 1 << 15;
  const int64_t size = y.dim(1);
  parallel_ranges(y.dim(0), std::max<int64_t>(1, kElements / size), [&](int64_t begin, int64_t end) {
    const TaskMemory sums(size);
    for (int64_t token = begin; token < end; ++token) {
      std::fill_n(sums.data(), size, 0.0f);
      for (int64_t j = 0; j < top_k_; ++j)
        add_column_sums(block_of(results, row(token * top_k_ + j)), 1, size, sums.data());
      copy_block({sums.data(), DType::kF32, size}, block_of(y, token), 1, size);
    }
  });
}

}  // namespace temper::backends
