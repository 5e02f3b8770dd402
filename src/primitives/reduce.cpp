#include "autograd/later_gradients.h"
#include "primitives/internal.h"

namespace temper::primitives {
namespace {

Shape with_last(Shape shape, int64_t size) {
  shape[shape.ndim() - 1] = size;
  return shape;
}

Tensor as_batch(const Tensor& x) { return x.ndim() == 3 ? x : x.reshape({1, x.dim(0), x.dim(1)}); }

struct Factor {
  Tensor stored;  // [batch, rows, columns], or with its last two swapped
  bool transposed = false;
  int64_t rows() const { return stored.dim(transposed ? 2 : 1); }
  int64_t columns() const { return stored.dim(transposed ? 1 : 2); }
};

Tensor product(const Factor& a, const Factor& b) {
  const Tensor c = empty_floats({a.stored.dim(0), a.rows(), b.columns()}, a.stored.device());
  primitive_functions(c.device()).matmul(a.stored, a.transposed, b.stored, b.transposed, c);
  return c;
}

}  // namespace

Var matmul(Tape& tape, const Var& a, const Var& b, MatmulOptions options) {
  const int ndim = a.value.ndim();
  if (ndim != b.value.ndim() || (ndim != 2 && ndim != 3) || a.dtype() != b.dtype())
    fail("matmul of {} {} and {} {}", to_string(a.dtype()), to_string(a.shape()), to_string(b.dtype()),
         to_string(b.shape()));
  check_alike(a, b);
  const bool flip = options.transpose_b;
  const Tensor x = as_batch(floats(a.value)), y = as_batch(floats(b.value));
  const Factor left{x}, right{y, flip};
  if (x.dim(0) != y.dim(0) || left.columns() != right.rows())
    fail("matmul of {} and {}{}", to_string(a.shape()), to_string(b.shape()), flip ? " transposed" : "");
  Tensor out = product(left, right);
  if (ndim == 2) out = out.reshape({out.dim(1), out.dim(2)});
  // What can be made again is not kept.
  const Var b_slot = b.requires_grad() ? b : Var{};
  const Saved factor = b.remake ? b.saved() : Saved(y);
  return tape.record(out.to(a.dtype()), {&a, &b}, [a, b = b_slot, x, factor, flip](const Tensor& grad) {
    const Tensor g = as_batch(floats(grad));
    if (a.requires_grad()) give(a, product({g}, {as_batch(floats(factor.get())), !flip}).reshape(a.shape()));
    if (!b.requires_grad()) return;
    LaterGradients::leave_or_compute(LaterGradients::of(b.slot), [b, x, g, flip] {
      give(b, (flip ? product({g, true}, {x}) : product({x, true}, {g})).reshape(b.shape()));
    });
  });
}

Var sum_last(Tape& tape, const Var& input) {
  const Tensor x = floats(input.value), out = empty_floats(with_last(x.shape(), 1), x.device());
  primitive_functions(x.device()).sum_last(x, out);
  return tape.record(out.to(input.dtype()), {&input}, [input](const Tensor& grad) {
    const Tensor dx = empty_floats(input.shape(), grad.device());
    primitive_functions(grad.device()).spread_last(floats(grad), dx);
    give(input, dx);
  });
}

Var max_last(Tape& tape, const Var& input) {
  const Tensor x = floats(input.value), out = empty_floats(with_last(x.shape(), 1), x.device());
  if (x.dim(-1) == 0) fail("the largest of no values: {}", to_string(x.shape()));
  primitive_functions(x.device()).max_last(x, out);
  return tape.constant(out.to(input.dtype()));
}

Var normalize_last(Tape& tape, const Var& x, const Var& weight, float eps) {
  const Var mean = scale(tape, sum_last(tape, mul(tape, x, x)), 1.0f / static_cast<float>(x.value.dim(-1)));
  return mul(tape, mul(tape, x, rsqrt(tape, add_scalar(tape, mean, eps))), weight);
}

}  // namespace temper::primitives
