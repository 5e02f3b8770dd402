#include "primitives/fake_quantized.h"

#include "primitives/broadcast.h"
#include "primitives/internal.h"

namespace temper::primitives {
namespace {

Tensor combined(const Binary& f, const Tensor& a, const Tensor& b) {
  const Tensor y = empty_floats(broadcast_shape(a.shape(), b.shape()), a.device());
  primitive_functions(a.device()).binary(f, a, b, y);
  return y;
}

Tensor mapped(const Unary& f, const Tensor& x) {
  const Tensor y = empty_floats(x.shape(), x.device());
  primitive_functions(x.device()).unary(f, x, y);
  return y;
}

// The largest magnitude of each block; infinity where something is not finite.
Tensor block_amax(const Tensor& x) {
  Shape shape = x.shape();
  shape[shape.ndim() - 1] = 1;
  const Tensor amax = empty_floats(shape, x.device());
  primitive_functions(x.device()).max_last(mapped(Magnitude{}, x), amax);
  return amax;
}

// 1 where values are within the limits, and 0 elsewhere.
Tensor within(const Tensor& limited, const Tensor& amax, const Tensor& low) {
  if (!low.defined()) return combined(Within{}, limited, amax);
  return combined(Where{}, combined(AtMost{}, limited, amax), combined(AtMost{}, low, limited));
}

// Float32, of grad's shape.
Tensor clipped(const Tensor& grad, const Tensor& limited, const Tensor& amax, const Tensor& low) {
  return combined(Where{}, floats(grad), within(limited, amax, low).reshape(grad.shape()));
}

}  // namespace

Tensor fake_quantized(const quant::Format& format, const Tensor& x, const Tensor& amax) {
  const Tensor own = format.has_blocks() ? block_amax(x) : amax, whole = amax.defined() ? amax : own;
  const Tensor by = combined(EncodingFactor{format}, own, whole);
  const Tensor elements = combined(Quantized{format}, x, by);
  return combined(Dequantized{format}, elements, combined(DecodingFactor{format}, own, whole));
}

Tensor fake_with_zeros(const quant::Element& element, const Tensor& x, const Tensor& low,
                       const Tensor& high) {
  const Tensor step = combined(RangeStep{element}, low, high), zero = combined(RangeZero{element}, low, high);
  const Tensor integers =
      mapped(Clamp{element.lowest, element.largest}, combined(Add{}, combined(WholeSteps{}, x, step), zero));
  return combined(Mul{}, combined(Sub{}, integers, zero), step);
}

Tensor scaled_columns(const Tensor& x, const Tensor& factors) { return combined(Mul{}, floats(x), factors); }

void clip_gradient(const Tensor& grad, const Tensor& limited, const Tensor& amax, const Tensor& low) {
  grad.copy_from(clipped(grad, limited, amax, low).to(grad.dtype()));
}

Var straight_through(Tape& tape, const Var& x, const Tensor& y, const Tensor& limited, const Tensor& amax,
                     const Tensor& low) {
  return tape.record(y, {&x}, [x, limited, amax, low](const Tensor& grad) {
    if (!limited.defined()) return x.slot->add(grad);
    give(x, clipped(grad, limited, amax, low));
  });
}

}  // namespace temper::primitives
