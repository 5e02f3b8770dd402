#include "primitives/broadcast.h"
#include "primitives/internal.h"

namespace temper::primitives {
namespace {

Var binary(Tape& tape, const Var& a, const Var& b, const Binary& f) {
  check_alike(a, b);
  const PrimitiveFunctions& device = primitive_functions(a.value.device());
  const Tensor x = floats(a.value), y = floats(b.value);
  const Tensor out = empty_floats(broadcast_shape(a.shape(), b.shape()), x.device());
  device.binary(f, x, y, out);
  return tape.record(out.to(a.dtype()), {&a, &b}, [a, b, x, y, f, &device](const Tensor& grad) {
    const Tensor da = wanted_gradient(a), db = wanted_gradient(b);
    device.binary_gradient(f, x, y, floats(grad), da, db);
    give(a, da);
    give(b, db);
  });
}

Var unary(Tape& tape, const Var& input, const Unary& f) {
  const PrimitiveFunctions& device = primitive_functions(input.value.device());
  const Tensor x = floats(input.value), y = empty_floats(x.shape(), x.device());
  device.unary(f, x, y);
  return tape.record(y.to(input.dtype()), {&input}, [input, x, y, f, &device](const Tensor& grad) {
    const Tensor dx = empty_floats(x.shape(), x.device());
    device.unary_gradient(f, x, y, floats(grad), dx);
    give(input, dx);
  });
}

}  // namespace

Var add(Tape& tape, const Var& a, const Var& b) { return binary(tape, a, b, Add{}); }
Var sub(Tape& tape, const Var& a, const Var& b) { return binary(tape, a, b, Sub{}); }
Var mul(Tape& tape, const Var& a, const Var& b) { return binary(tape, a, b, Mul{}); }
Var div(Tape& tape, const Var& a, const Var& b) { return binary(tape, a, b, Div{}); }

// Keeps nothing for backward: only the factor is asked for.
Var scale(Tape& tape, const Var& x, float factor) {
  const PrimitiveFunctions& device = primitive_functions(x.value.device());
  const auto scaled = [factor, &device](const Tensor& from) {
    const Tensor wide = floats(from), to = empty_floats(wide.shape(), wide.device());
    device.unary(Scale{factor}, wide, to);
    return to;
  };
  return tape.record(scaled(x.value).to(x.dtype()), {&x},
                     [slot = x.slot, dtype = x.dtype(), scaled](const Tensor& grad) {
                       const Tensor dx = scaled(grad);
                       slot->add(slot->persistent() ? dx : dx.to(dtype));
                     });
}
Var add_scalar(Tape& tape, const Var& x, float term) { return unary(tape, x, AddScalar{term}); }
Var exp(Tape& tape, const Var& x) { return unary(tape, x, Exp{}); }
Var log(Tape& tape, const Var& x) { return unary(tape, x, Log{}); }
Var rsqrt(Tape& tape, const Var& x) { return unary(tape, x, Rsqrt{}); }
Var sigmoid(Tape& tape, const Var& x) { return unary(tape, x, Sigmoid{}); }
Var softplus(Tape& tape, const Var& x) { return unary(tape, x, Softplus{}); }
Var erf(Tape& tape, const Var& x) { return unary(tape, x, Erf{}); }
Var clamp(Tape& tape, const Var& x, float least, float most) { return unary(tape, x, Clamp{least, most}); }

Var cast(Tape& tape, const Var& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  return tape.record(x.value.to(dtype), {&x}, [x](const Tensor& grad) { give(x, grad); });
}

}  // namespace temper::primitives
