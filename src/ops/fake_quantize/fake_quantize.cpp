#include "ops/fake_quantize/fake_quantize.h"

#include "base/trace.h"
#include "ops/checks.h"
#include "ops/op_info.h"
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
  }
  Tensor x, amax;
};

Tensor composed(const FakeQuantize& op, const Stretched& wide) {
  return p::fake_quantized(op.format, wide.x, wide.amax).reshape(op.x.shape()).to(op.x.dtype());
}

Var compose(Tape& tape, const Var& x, const FakeQuantize& op, bool clips) {
  const Stretched wide(op);
  return p::straight_through(tape, x, composed(op, wide), clips ? wide.x : Tensor(), wide.amax);
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
  if (!op.amax.defined()) return;
  check_dtype(name, "amax", op.amax, DType::kF32);
  check_contiguous(name, "amax", op.amax);
  const quant::Groups groups = quant::groups_of(name, op.x.shape(), op.amax.shape());
  if (format.has_blocks() && groups.row_groups * groups.column_groups != 1)
    fail("[fake_quantize] amax is {}, the format needs one for each matrix", to_string(op.amax.shape()));
}

trace::Span span_of(const FakeQuantize& op, bool clips) {
  return trace::Span(FakeQuantize::kName, [&] {
    const auto bytes = static_cast<double>(op.x.bytes());
    return trace::OpWork{{0, 2 * bytes}, {0, clips ? bytes : 0}};
  });
}

// Lets nobody keep y: it is made again from x.
void remake_by(const Tape& tape, const Kernel<FakeQuantize>& kernel, const FakeQuantize& op, const Var& x,
               Var& y) {
  if (!tape.rematerializes()) return;
  y.remake = std::make_shared<Remake>(
      [saved = x.saved(), shape = op.x.shape(), amax = op.amax, format = op.format, &kernel] {
        const Tensor x = saved.get();
        return kernel.forward({x.reshape(shape), amax, format}).reshape(x.shape());
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

// With factors of columns: what the kernel rounds and clips is made again from x where it is needed.
class Scaled {
 public:
  Scaled(const Kernel<FakeQuantize>& kernel, const FakeQuantize& op, ColumnFactors factors)
      : kernel_(&kernel),
        shape_(op.x.shape()),
        amax_(op.amax),
        format_(op.format),
        factors_(std::move(factors)) {}

  Tensor forward(const Tensor& x) const {
    const FakeQuantize op = scaled(x);
    const Tensor y = kernel_->compose != nullptr ? composed(op, Stretched(op)) : kernel_->forward(op);
    return p::scaled_columns(y, factors_.back).to(x.dtype()).reshape(x.shape());
  }
  void clip(const Tensor& x, const Tensor& given) const {
    const FakeQuantize op = scaled(x);
    const Tensor grad = given.reshape(shape_);
    if (kernel_->compose != nullptr) {
      const Stretched wide(op);
      return p::clip_gradient(grad, wide.x, wide.amax);
    }
    if (grad.dtype() == DType::kF32) return kernel_->backward(op, grad);
    const Tensor wide = grad.to(DType::kF32);
    kernel_->backward(op, wide);
    grad.copy_from(wide.to(grad.dtype()));
  }

 private:
  FakeQuantize scaled(const Tensor& x) const {
    return {p::scaled_columns(x.reshape(shape_), factors_.by), amax_, format_};
  }

  const Kernel<FakeQuantize>* kernel_;
  Shape shape_;
  Tensor amax_;
  quant::Format format_;
  ColumnFactors factors_;
};

void remake_by(const Tape& tape, const Scaled& scaled, const Var& x, Var& y) {
  if (!tape.rematerializes()) return;
  y.remake = std::make_shared<Remake>([saved = x.saved(), scaled] { return scaled.forward(saved.get()); });
}

Var fake_quantize_scaled(Tape& tape, const Scaled& scaled, const Var& x, bool clips) {
  Var y = tape.record(scaled.forward(x.value), {&x},
                      [slot = x.slot, saved = x.saved(), scaled, clips](const Tensor& dy) {
                        if (!clips) return slot->add(dy);
                        const Tensor own = dy.is_contiguous() && !dy.shares_storage() ? dy : dy.clone();
                        scaled.clip(saved.get(), own);
                        slot->add(own);
                      });
  remake_by(tape, scaled, x, y);
  return y;
}

}  // namespace

Var fake_quantize(Tape& tape, Bound<FakeQuantize> bound, const Var& x, const Tensor& amax,
                  const quant::Format& format, bool clips, const ColumnFactors& factors) {
  const FakeQuantize op{x.value, amax, format};
  check(op, clips);
  if (x.value.numel() == 0) return x;
  const trace::Span span = span_of(op, clips);
  const auto& kernel = *bound;
  if (factors.by.defined()) {
    check_factors(op, factors);
    return fake_quantize_scaled(tape, {kernel, op, factors}, x, clips);
  }
  if (kernel.compose != nullptr) return kernel.compose(tape, x, op, clips);
  Var y = tape.record(kernel.forward(op), {&x},
                      [slot = x.slot, op = clips ? op : FakeQuantize{}, clips, &kernel](const Tensor& dy) {
                        if (!clips) return slot->add(dy);
                        const Tensor own = dy.is_contiguous() && !dy.shares_storage() ? dy : dy.clone();
                        kernel.backward(op, own);
                        slot->add(own);
                      });
  remake_by(tape, kernel, op, x, y);
  return y;
}

Var fake_quantize_parameter(Tape& tape, Bound<FakeQuantize> bound, const Var& x, const Tensor& amax,
                            const quant::Format& format, const OfParameter& how) {
  const auto& [shape, clips, factors] = how;
  const FakeQuantize op{x.value.reshape(shape), amax, format};
  check(op, clips);
  if (x.value.numel() == 0) return x;
  const trace::Span span = span_of(op, clips);
  const auto& kernel = *bound;
  if (factors.by.defined()) {
    check_factors(op, factors);
    const Scaled scaled(kernel, op, factors);
    Tape::Backward clip;
    if (clips) clip = [saved = x.saved(), scaled](const Tensor& grad) { scaled.clip(saved.get(), grad); };
    Var y = tape.record_in_place(scaled.forward(x.value), x, std::move(clip));
    remake_by(tape, scaled, x, y);
    return y;
  }
  if (kernel.compose != nullptr)
    return p::reshape(tape, kernel.compose(tape, p::reshape(tape, x, shape), op, clips), x.shape());
  Tape::Backward clip;
  if (clips)
    clip = [saved = x.saved(), shape = how.shape, amax, format, &kernel](const Tensor& grad) {
      kernel.backward({saved.get().reshape(shape), amax, format}, grad.reshape(shape));
    };
  Var y = tape.record_in_place(kernel.forward(op).reshape(x.shape()), x, std::move(clip));
  remake_by(tape, kernel, op, x, y);
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
