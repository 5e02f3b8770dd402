#include "ops/fake_quantize/fake_quantize.h"

#include "base/tracing/trace.h"
#include "ops/checks.h"
#include "ops/op_info.h"
#include "ops/op_listener.h"
#include "primitives/fake_quantized.h"
#include "primitives/primitives.h"
#include "quant/groups.h"

namespace temper::ops {
namespace {

namespace p = primitives;

// [experts, row groups, rows in one, column groups, columns in one]: amax with ones in it goes with it.
struct Grouped {
  Shape values, amax;
};

Grouped grouped(const FakeQuantize& op, int64_t run) {
  const Shape& shape = op.x.shape();
  const bool experts = shape.ndim() == 3;
  const int64_t of_experts = experts ? shape[0] : 1, rows = shape[shape.ndim() - 2], columns = op.x.dim(-1);
  if (!op.amax.defined()) return {{of_experts, 1, 1, rows, columns / run, run}, {1, 1, 1, 1, 1, 1}};
  const quant::Groups groups = quant::groups_of(FakeQuantize::kName, shape, op.amax.shape());
  const int64_t each = groups.experts / std::max<int64_t>(groups.expert_groups, 1);
  return {{groups.expert_groups, each, groups.row_groups, rows / groups.row_groups, columns / run, run},
          {groups.expert_groups, 1, groups.row_groups, 1, groups.column_groups, 1}};
}

// x and amax in shapes of which one stretches to the other.
struct Stretched {
  explicit Stretched(const FakeQuantize& op) {
    const int64_t columns = op.x.dim(-1);
    const Grouped shapes = grouped(op, op.format.has_blocks() ? op.format.block : columns / op.amax.dim(-1));
    x = op.x.to(DType::kF32).contiguous().reshape(shapes.values);
    if (op.amax.defined()) amax = op.amax.reshape(shapes.amax);
    if (op.low.defined()) low = op.low.reshape(shapes.amax);
  }
  Tensor x, amax, low;
};

Tensor composed(const FakeQuantize& op, const Stretched& wide) {
  const Tensor y = op.format.has_zero_points()
                       ? p::fake_with_zeros(op.format.element, wide.x, wide.low, wide.amax)
                       : p::fake_quantized(op.format, wide.x, wide.amax);
  return y.reshape(op.x.shape()).to(op.x.dtype());
}

Var compose(Tape& tape, const Var& x, const FakeQuantize& op, bool clips) {
  const Stretched wide(op);
  return p::straight_through(tape, x, composed(op, wide), clips ? wide.x : Tensor(), wide.amax, wide.low);
}

void check(const FakeQuantize& op, bool clips) {
  constexpr auto name = FakeQuantize::kName;
  check_float(name, "x", op.x);
  if (op.x.ndim() != 2 && op.x.ndim() != 3)
    fail("[fake_quantize] x is {}, needs [rows, columns] or [experts, rows, columns]",
         to_string(op.x.shape()));
  check_contiguous(name, "x", op.x, 1);
  const quant::Format& format = op.format;
  if (format.needs_amax() != op.amax.defined())
    fail("[fake_quantize] amax is {}", op.amax.defined() ? "given, and the format needs none" : "missing");
  if (clips && format.has_blocks())
    fail("[fake_quantize] clips is for formats with a given amax, this one finds the scales of its blocks");
  if (format.has_blocks() && op.x.dim(-1) % format.block != 0)
    fail("[fake_quantize] x is {}, needs columns in blocks of {}", to_string(op.x.shape()), format.block);
  if (format.has_zero_points() != op.low.defined())
    fail("[fake_quantize] low is {}",
         op.low.defined() ? "given, and the format has no zero points" : "missing");
  if (!op.amax.defined()) return;
  check_dtype(name, "amax", op.amax, DType::kF32);
  check_contiguous(name, "amax", op.amax);
  const quant::Groups groups = quant::groups_of(name, op.x.shape(), op.amax.shape());
  if (format.has_blocks() && groups.row_groups * groups.column_groups != 1)
    fail("[fake_quantize] amax is {}, the format needs one for each matrix", to_string(op.amax.shape()));
  if (!op.low.defined()) return;
  check_dtype(name, "low", op.low, DType::kF32);
  check_contiguous(name, "low", op.low);
  if (op.low.shape() != op.amax.shape())
    fail("[fake_quantize] low is {}, amax is {}: both are of the same elements", to_string(op.low.shape()),
         to_string(op.amax.shape()));
}

trace::Span span_of(const FakeQuantize& op, bool clips) {
  return trace::Span(FakeQuantize::kName, [&] {
    const auto bytes = static_cast<double>(op.x.bytes());
    return trace::OpWork{{0, 2 * bytes}, {0, clips ? bytes : 0}};
  });
}

void check_factors(const FakeQuantize& op, const ColumnFactors& factors) {
  Shape needed = op.x.shape();
  needed[needed.ndim() - 2] = 1;
  for (const auto& [name, each] : {std::pair{"factors.by", &factors.by}, {"factors.back", &factors.back}}) {
    check_dtype(FakeQuantize::kName, name, *each, DType::kF32);
    check_contiguous(FakeQuantize::kName, name, *each);
    if (each->shape() != needed)
      fail("[fake_quantize] {} is {}, x is {} and needs {}", name, to_string(each->shape()),
           to_string(op.x.shape()), to_string(needed));
  }
}

void check_second(const FakeQuantize& op, const SecondRounding& again) {
  if (again.format.has_blocks())
    fail("[fake_quantize] again is for formats with a given amax, this one finds the scales of its blocks");
  check_dtype(FakeQuantize::kName, "again.amax", again.amax, DType::kF32);
  check_contiguous(FakeQuantize::kName, "again.amax", again.amax);
  quant::groups_of(FakeQuantize::kName, op.x.shape(), again.amax.shape());
}

// What a kernel rounds and clips, made from x where it is needed: with factors of columns a scaled copy of
// it, and of what is rounded twice a wide one, unless one pass does it all.
class Rounded {
 public:
  Rounded(const Kernel<FakeQuantize>& kernel, const FakeQuantize& op, const ColumnFactors& factors,
          const SecondRounding& again)
      : kernel_(&kernel),
        shape_(op.x.shape()),
        amax_(op.amax),
        format_(op.format),
        factors_(factors),
        again_(again),
        low_(op.low) {
    if (scales()) check_factors(op, factors);
    if (again_.amax.defined()) check_second(op, again_);
  }

  Tensor forward(const Tensor& x) const {
    if (is_one_pass()) return kernel_->forward(whole(x)).reshape(x.shape());
    Tensor y = rounded(read(x));
    if (again_.amax.defined()) y = rounded({y.contiguous(), again_.amax, again_.format});
    if (scales()) y = p::scaled_columns(y, factors_.back);
    return y.to(x.dtype()).reshape(x.shape());
  }
  void clip(const Tensor& x, const Tensor& given) const {
    const Tensor grad = given.reshape(shape_);
    if (is_one_pass()) return kernel_->backward(whole(x), grad);
    const FakeQuantize op = read(x);
    if (kernel_->compose != nullptr) {
      const Stretched wide(op);
      return p::clip_gradient(grad, wide.x, wide.amax, wide.low);
    }
    if (!is_wide() || grad.dtype() == DType::kF32) return kernel_->backward(op, grad);
    const Tensor wide = grad.to(DType::kF32);
    kernel_->backward(op, wide);
    grad.copy_from(wide.to(grad.dtype()));
  }
  // y is not kept: it is made again from x.
  void remake(const Tape& tape, const Var& x, Var& y) const {
    if (!tape.rematerializes()) return;
    y.remake = std::make_shared<Remake>([saved = x.saved(), *this] { return forward(saved.get()); });
  }

 private:
  bool scales() const { return factors_.by.defined(); }
  bool is_wide() const { return scales() || again_.amax.defined(); }
  bool is_one_pass() const {
    const bool second = !again_.amax.defined() ||
                        (again_.amax.dim(-1) == 1 && again_.format == quant::by_scales(quant::kE4M3));
    return is_wide() && kernel_->traits.wide && second && !low_.defined();
  }
  FakeQuantize whole(const Tensor& x) const {
    // Outer strides may be of any size.
    return {x.shape() == shape_ ? x : x.reshape(shape_), amax_, format_, factors_, again_, low_};
  }
  Tensor rounded(const FakeQuantize& op) const {
    return kernel_->compose != nullptr ? composed(op, Stretched(op)) : kernel_->forward(op);
  }
  FakeQuantize read(const Tensor& x) const {
    const FakeQuantize op = whole(x);
    const Tensor given = scales()    ? p::scaled_columns(op.x, factors_.by)
                         : is_wide() ? op.x.to(DType::kF32).contiguous()
                                     : op.x;
    return {given, amax_, format_, {}, {}, low_};
  }

  const Kernel<FakeQuantize>* kernel_;
  Shape shape_;
  Tensor amax_;
  quant::Format format_;
  ColumnFactors factors_;
  SecondRounding again_;
  Tensor low_;
};

// `op` is of x, without factors.
Var fake_values(Tape& tape, Bound<FakeQuantize> bound, const Var& x, const FakeQuantize& op, bool clips,
                const ColumnFactors& factors) {
  check(op, clips);
  if (x.value.numel() == 0) return x;
  const trace::Span span = span_of(op, clips);
  const auto& kernel = *bound;
  if (kernel.compose != nullptr && !factors.by.defined())
    return observed(FakeQuantize::kName, Tensor(), kernel.compose(tape, x, op, clips));
  const Rounded rounded(kernel, op, factors, {});
  Var y = tape.record(rounded.forward(x.value), {&x},
                      [slot = x.slot, saved = clips ? x.saved() : Saved(), rounded, clips](const Tensor& dy) {
                        if (!clips) return slot->add(dy);
                        const Tensor own = dy.is_contiguous() && !dy.shares_storage() ? dy : dy.clone();
                        rounded.clip(saved.get(), own);
                        slot->add(own);
                      });
  rounded.remake(tape, x, y);
  return observed(FakeQuantize::kName, Tensor(), std::move(y));
}

}  // namespace

Var fake_quantize(Tape& tape, Bound<FakeQuantize> bound, const Var& x, const Tensor& amax,
                  const quant::Format& format, bool clips, const ColumnFactors& factors) {
  return fake_values(tape, bound, x, {x.value, amax, format}, clips, factors);
}

Var fake_quantize(Tape& tape, Bound<FakeQuantize> bound, const Var& x, const quant::Bounds& bounds,
                  const quant::Format& format, bool clips) {
  return fake_values(tape, bound, x, {x.value, bounds.high, format, {}, {}, bounds.low}, clips, {});
}

Var fake_quantize_parameter(Tape& tape, Bound<FakeQuantize> bound, const Var& x, const Tensor& amax,
                            const quant::Format& format, const OfParameter& how) {
  const auto& [shape, clips, factors, again, low] = how;
  const FakeQuantize op{x.value.reshape(shape), amax, format, {}, {}, low};
  check(op, clips);
  if (x.value.numel() == 0) return x;
  const trace::Span span = span_of(op, clips);
  const auto& kernel = *bound;
  if (kernel.compose != nullptr && !factors.by.defined() && !again.amax.defined())
    return p::reshape(tape, kernel.compose(tape, p::reshape(tape, x, shape), op, clips), x.shape());
  const Rounded rounded(kernel, op, factors, again);
  Tape::Backward clip;
  if (clips) clip = [saved = x.saved(), rounded](const Tensor& grad) { rounded.clip(saved.get(), grad); };
  Var y = tape.record_in_place(rounded.forward(x.value), x, std::move(clip));
  rounded.remake(tape, x, y);
  return y;
}

namespace {

Tensor outline_forward(const FakeQuantize& op) { return empty_like(op.x, op.x.shape()); }

void outline_backward(const FakeQuantize&, const Tensor&) {}

}  // namespace

Probe fake_quantize_probe;

void register_fake_quantize() {
  register_op<FakeQuantize>(compose, fake_quantize_probe, {outline_forward, outline_backward},
                            {.cpu = {{{"simd", "simd"}}}, .gpu = {{{"cuda", "cuda"}}}});
}

}  // namespace temper::ops
