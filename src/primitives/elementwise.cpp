#include <cmath>

#include "base/threads.h"
#include "primitives/internal.h"

namespace temper::primitives {
namespace {

constexpr int64_t kGrain = 1 << 15;

Shape broadcast_shape(const Shape& a, const Shape& b) {
  const int ndim = std::max(a.ndim(), b.ndim());
  std::array<int64_t, Shape::kMaxDims> sizes{};
  for (int d = 0; d < ndim; ++d) {
    const int64_t x = d < ndim - a.ndim() ? 1 : a[d - (ndim - a.ndim())];
    const int64_t y = d < ndim - b.ndim() ? 1 : b[d - (ndim - b.ndim())];
    if (x != y && x != 1 && y != 1) fail("cannot broadcast {} with {}", to_string(a), to_string(b));
    sizes[static_cast<size_t>(d)] = x == 1 ? y : x;
  }
  return Shape(std::span<const int64_t>(sizes.data(), static_cast<size_t>(ndim)));
}

// Calls body(out_index, a_index, b_index) for every element of the broadcast result, in order.
template <class Body>
void for_each_pair(const Shape& out, const Shape& a, const Shape& b, Body body) {
  const auto steps = [&](const Shape& shape) {
    std::array<int64_t, Shape::kMaxDims> step{};
    int64_t size = 1;
    for (int d = shape.ndim() - 1; d >= 0; --d) {
      step[static_cast<size_t>(d + out.ndim() - shape.ndim())] = shape[d] == 1 ? 0 : size;
      size *= shape[d];
    }
    return step;
  };
  const auto a_step = steps(a), b_step = steps(b);
  std::array<int64_t, Shape::kMaxDims> index{};
  int64_t at_a = 0, at_b = 0;
  const int64_t count = out.numel();
  for (int64_t i = 0; i < count; ++i) {
    body(i, at_a, at_b);
    for (int d = out.ndim() - 1; d >= 0; --d) {
      const auto k = static_cast<size_t>(d);
      at_a += a_step[k];
      at_b += b_step[k];
      if (++index[k] < out[d]) break;
      at_a -= a_step[k] * out[d];
      at_b -= b_step[k] * out[d];
      index[k] = 0;
    }
  }
}

// f(x, y) and its derivatives df/dx, df/dy as functions of (x, y).
template <class F, class Fx, class Fy>
Var binary(Tape& tape, const Var& a, const Var& b, F f, Fx fx, Fy fy) {
  if (a.dtype() != b.dtype()) fail("{} combined with {}", to_string(a.dtype()), to_string(b.dtype()));
  const Shape shape = broadcast_shape(a.shape(), b.shape());
  const Tensor x = floats(a.value), y = floats(b.value);
  Tensor out = Tensor::empty(shape, DType::kF32);
  const float *px = x.data<float>(), *py = y.data<float>();
  float* po = out.data<float>();
  if (a.shape() == b.shape()) {
    parallel_ranges(out.numel(), kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) po[i] = f(px[i], py[i]);
    });
  } else {
    for_each_pair(shape, a.shape(), b.shape(), [&](int64_t i, int64_t j, int64_t k) { po[i] = f(px[j], py[k]); });
  }
  return tape.record(out.to(a.dtype()), {&a, &b}, [a, b, x, y, shape, fx, fy](const Tensor& grad) {
    const Tensor g = floats(grad);
    Tensor da = Tensor::zeros(a.shape(), DType::kF32), db = Tensor::zeros(b.shape(), DType::kF32);
    const float *pg = g.data<float>(), *px = x.data<float>(), *py = y.data<float>();
    float *pa = da.data<float>(), *pb = db.data<float>();
    for_each_pair(shape, a.shape(), b.shape(), [&](int64_t i, int64_t j, int64_t k) {
      pa[j] += pg[i] * fx(px[j], py[k]);
      pb[k] += pg[i] * fy(px[j], py[k]);
    });
    give(a, da);
    give(b, db);
  });
}

// f(x) and its derivative as a function of (x, f(x)).
template <class F, class Fx>
Var unary(Tape& tape, const Var& input, F f, Fx fx) {
  const Tensor x = floats(input.value);
  Tensor y = Tensor::empty(x.shape(), DType::kF32);
  const auto run = [&](auto body) {
    parallel_ranges(x.numel(), kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) body(i);
    });
  };
  const float* px = x.data<float>();
  float* py = y.data<float>();
  run([&](int64_t i) { py[i] = f(px[i]); });
  return tape.record(y.to(input.dtype()), {&input}, [input, x, y, fx](const Tensor& grad) {
    const Tensor g = floats(grad);
    Tensor dx = Tensor::empty(x.shape(), DType::kF32);
    const float *pg = g.data<float>(), *px = x.data<float>(), *py = y.data<float>();
    float* pd = dx.data<float>();
    parallel_ranges(x.numel(), kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) pd[i] = pg[i] * fx(px[i], py[i]);
    });
    give(input, dx);
  });
}

}  // namespace

Var add(Tape& tape, const Var& a, const Var& b) {
  const auto one = [](float, float) { return 1.f; };
  return binary(tape, a, b, [](float x, float y) { return x + y; }, one, one);
}

Var sub(Tape& tape, const Var& a, const Var& b) {
  return binary(tape, a, b, [](float x, float y) { return x - y; }, [](float, float) { return 1.f; },
                [](float, float) { return -1.f; });
}

Var mul(Tape& tape, const Var& a, const Var& b) {
  return binary(tape, a, b, [](float x, float y) { return x * y; }, [](float, float y) { return y; },
                [](float x, float) { return x; });
}

Var div(Tape& tape, const Var& a, const Var& b) {
  return binary(tape, a, b, [](float x, float y) { return x / y; }, [](float, float y) { return 1 / y; },
                [](float x, float y) { return -x / (y * y); });
}

Var scale(Tape& tape, const Var& x, float factor) {
  return unary(tape, x, [=](float v) { return v * factor; }, [=](float, float) { return factor; });
}

Var add_scalar(Tape& tape, const Var& x, float term) {
  return unary(tape, x, [=](float v) { return v + term; }, [](float, float) { return 1.f; });
}

Var exp(Tape& tape, const Var& x) {
  return unary(tape, x, [](float v) { return std::exp(v); }, [](float, float y) { return y; });
}

Var log(Tape& tape, const Var& x) {
  return unary(tape, x, [](float v) { return std::log(v); }, [](float v, float) { return 1 / v; });
}

Var rsqrt(Tape& tape, const Var& x) {
  return unary(tape, x, [](float v) { return 1 / std::sqrt(v); }, [](float v, float y) { return -0.5f * y / v; });
}

Var sigmoid(Tape& tape, const Var& x) {
  return unary(tape, x, [](float v) { return 1 / (1 + std::exp(-v)); }, [](float, float y) { return y * (1 - y); });
}

Var cast(Tape& tape, const Var& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  return tape.record(x.value.to(dtype), {&x}, [x](const Tensor& grad) { give(x, grad); });
}

}  // namespace temper::primitives
