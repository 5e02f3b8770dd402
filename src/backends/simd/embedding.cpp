#include <algorithm>
#include <vector>

#include "backends/cpu/float32_sums.h"
#include "backends/floats.h"
#include "backends/simd/rows.h"
#include "base/threads/threads.h"
#include "ops/embedding/embedding.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/simd/embedding.cpp"
#include <hwy/foreach_target.h>

#include "backends/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace temper::backends {
namespace {
namespace HWY_NAMESPACE {
using namespace temper::backends::HWY_NAMESPACE;

// sum += row
void add_row(const Tensor& dy, int64_t token, float* sum) {
  const int64_t size = dy.dim(1);
  visit_wide(dy.dtype(), [&]<class T>() HWY_ATTR {
    const T* row = dy.data<T>() + token * size;
    sweep(size, [&](int64_t i, auto lanes)
                    HWY_ATTR { store(hn::Add(load(sum + i, lanes), load(row + i, lanes)), sum + i, lanes); });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace temper::backends
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace temper::backends {
namespace {

using ops::Embedding;
HWY_EXPORT(add_row);

Tensor run_forward(const Embedding& op) {
  const int64_t tokens = op.ids.numel(), size = op.table.dim(1);
  const Tensor y = Tensor::empty({tokens, size}, op.table.dtype());
  const int64_t bytes = size * size_of(y.dtype());
  const auto* ids = op.ids.data<int32_t>();
  const auto* from = static_cast<const std::byte*>(op.table.raw());
  auto* to = static_cast<std::byte*>(y.raw());
  parallel_ranges(tokens, rows_per_task(size), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t row = ids[t] - op.first;
      if (row >= 0 && row < op.table.dim(0))
        std::copy_n(from + row * bytes, bytes, to + t * bytes);
      else
        std::fill_n(to + t * bytes, bytes, std::byte{0});
    }
  });
  return y;
}

// Tokens sorted by row, equal rows by position.
struct Place {
  int32_t id, token;
  bool operator<(const Place& other) const { return id != other.id ? id < other.id : token < other.token; }
};

std::vector<Place> sorted_places(const Embedding& op) {
  std::vector<Place> places;
  for (const int32_t id : op.ids.values<int32_t>())
    places.push_back({static_cast<int32_t>(id - op.first), static_cast<int32_t>(places.size())});
  std::sort(places.begin(), places.end());
  return places;
}

// Every task owns a range of the vocabulary, so no two tasks touch the same row. A row is summed over all its
// tokens before it is kept.
void run_backward(const Embedding& op, const Tensor& dy, const GradTarget& table) {
  if (!table.wanted()) return;
  const Tensor grads = dy.contiguous();
  const std::vector<Place> places = sorted_places(op);
  const int64_t vocab = op.table.dim(0), size = op.table.dim(1);
  const GradTarget filled{table.buffer, true};
  parallel_ranges(vocab, rows_per_task(size), [&](int64_t begin, int64_t end) {
    if (!table.accumulate) table.buffer.narrow(0, begin, end - begin).fill_zero();
    auto place = std::lower_bound(places.begin(), places.end(), Place{static_cast<int32_t>(begin), -1});
    while (place != places.end() && place->id < end) {
      const int32_t id = place->id;
      sum_in_float32(filled, id * size, size, [&](float* sums) {
        for (; place != places.end() && place->id == id; ++place)
          HWY_DYNAMIC_DISPATCH(add_row)(grads, place->token, sums);
      });
    }
  });
}

}  // namespace

void register_simd_embedding() {
  ops::kernels<Embedding>().add(
      "simd", {.accepts = refuse_float16, .forward = run_forward, .backward = run_backward});
}

}  // namespace temper::backends
#endif  // HWY_ONCE
