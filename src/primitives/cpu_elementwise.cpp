#include <type_traits>

#include "base/threads/threads.h"
#include "primitives/broadcast.h"
#include "primitives/cpu.h"

namespace temper::primitives::cpu {
namespace {

constexpr int64_t kGrain = 1 << 15;

// Of functions that call the mathematics library for each element.
template <class F>
constexpr int64_t grain_of() {
  constexpr bool is_costly = std::is_same_v<F, Exp> || std::is_same_v<F, Log> || std::is_same_v<F, Sigmoid> ||
                             std::is_same_v<F, Softplus> || std::is_same_v<F, Erf>;
  return is_costly ? 1 << 12 : kGrain;
}

// Calls body(out_index, a_index, b_index) for every element of the broadcast result, in order.
template <class Body>
void for_each_pair(int64_t count, const Broadcast& shape, Body body) {
  const int last = shape.ndim - 1;
  const int64_t width = last < 0 ? 1 : shape.sizes[last];
  const int64_t a_step = last < 0 ? 0 : shape.a_steps[last], b_step = last < 0 ? 0 : shape.b_steps[last];
  std::array<int64_t, Shape::kMaxDims> index{};
  int64_t at_a = 0, at_b = 0;
  for (int64_t row = 0; row < count; row += width) {
    for (int64_t i = 0; i < width; ++i) body(row + i, at_a + i * a_step, at_b + i * b_step);
    for (int d = last - 1; d >= 0; --d) {
      at_a += shape.a_steps[d];
      at_b += shape.b_steps[d];
      if (++index[static_cast<size_t>(d)] < shape.sizes[d]) break;
      at_a -= shape.a_steps[d] * shape.sizes[d];
      at_b -= shape.b_steps[d] * shape.sizes[d];
      index[static_cast<size_t>(d)] = 0;
    }
  }
}

float* begin_sum(const Tensor& sum) {
  if (!sum.defined()) return nullptr;
  sum.fill_zero();
  return sum.data<float>();
}

}  // namespace

void unary(const Unary& function, const Tensor& x, const Tensor& y) {
  const float* px = x.data<float>();
  float* py = y.data<float>();
  std::visit(
      [&](auto f) {
        parallel_ranges(x.numel(), grain_of<decltype(f)>(), [=](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) py[i] = f.value(px[i]);
        });
      },
      function);
}

void unary_gradient(const Unary& function, const Tensor& x, const Tensor& y, const Tensor& dy,
                    const Tensor& dx) {
  const float *px = x.data<float>(), *py = y.data<float>(), *pg = dy.data<float>();
  float* pd = dx.data<float>();
  std::visit(
      [&](auto f) {
        parallel_ranges(x.numel(), kGrain, [=](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) pd[i] = pg[i] * f.slope(px[i], py[i]);
        });
      },
      function);
}

void binary(const Binary& function, const Tensor& a, const Tensor& b, const Tensor& y) {
  const float *pa = a.data<float>(), *pb = b.data<float>();
  float* py = y.data<float>();
  std::visit(
      [&](auto f) {
        if (a.shape() == b.shape())
          parallel_ranges(y.numel(), kGrain, [=](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) py[i] = f.value(pa[i], pb[i]);
          });
        else
          for_each_pair(y.numel(), broadcast(y.shape(), a.shape(), b.shape()),
                        [=](int64_t i, int64_t j, int64_t k) { py[i] = f.value(pa[j], pb[k]); });
      },
      function);
}

void binary_gradient(const Binary& function, const Tensor& a, const Tensor& b, const Tensor& dy,
                     const Tensor& da, const Tensor& db) {
  const float *pa = a.data<float>(), *pb = b.data<float>(), *pg = dy.data<float>();
  float *sum_a = begin_sum(da), *sum_b = begin_sum(db);
  const Broadcast shape = broadcast(dy.shape(), a.shape(), b.shape());
  std::visit(
      [&](auto f) {
        for_each_pair(dy.numel(), shape, [=](int64_t i, int64_t j, int64_t k) {
          if (sum_a != nullptr) sum_a[j] += pg[i] * f.slope_a(pa[j], pb[k]);
          if (sum_b != nullptr) sum_b[k] += pg[i] * f.slope_b(pa[j], pb[k]);
        });
      },
      function);
}

}  // namespace temper::primitives::cpu
