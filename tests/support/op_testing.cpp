#include "tests/support/op_testing.h"

#include <cmath>
#include <limits>

#include "base/random.h"

namespace temper::op_testing {
namespace {

using Slots = std::vector<std::shared_ptr<GradSlot>>;

// A central difference: the derivative along `direction`, or of one element.
struct Slope {
  size_t element = 0;
  Doubles direction = {};  // empty: along the element
  double value = 0;
};

struct Expected {
  Shape y_shape;
  Doubles y, others;
  Doubles cotangent;                       // what the objective Σ cotangent · y weighs y with
  std::vector<Doubles> values;             // of the inputs, rounded to the dtype
  std::vector<Doubles> grads;              // by the composition in float32
  std::vector<std::vector<Slope>> slopes;  // by central differences, per input
};

struct Outcome {
  Tensor y;
  Doubles others;
  std::vector<Doubles> grads;  // empty for frozen inputs
};

struct Tolerances {
  double forward, grad;
};

// float32: a sum of K terms in random order errs by about sqrt(K) roundings. 16-bit dtypes: each
// rounding errs by half a unit in the last place; gradients are rounded more often on their way.
Tolerances tolerances(const Case& c, DType dtype) {
  const double sum = 2e-6 + 2e-7 * std::sqrt(static_cast<double>(c.terms));
  if (dtype == DType::kF32) return {sum, 2 * sum};
  const double rounding = c.roundings * (dtype == DType::kBF16 ? 0x1p-8 : 0x1p-11);
  return {sum + rounding, sum + 2 * rounding};
}

DType output_dtype(const Case& c, DType dtype) { return c.root ? DType::kF32 : dtype; }

std::vector<Tensor> lay_out(const Case& c, const std::vector<Doubles>& values, DType dtype, Device device) {
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    const Input& input = c.inputs[i];
    tensors.push_back(input.padding ? padded_tensor_of(values[i], input.shape, dtype, *input.padding, device)
                                    : tensor_of(values[i], input.shape, dtype).on(device));
  }
  return tensors;
}

// Parameters get a buffer of NaN: whoever adds to it before it was filled shows.
std::shared_ptr<GradSlot> make_slot(const Input& input, Device device, DType gradients) {
  auto slot = std::make_shared<GradSlot>();
  if (input.role == Role::kVariable) return slot;
  const Doubles nan(static_cast<size_t>(input.shape.numel()), std::numeric_limits<double>::quiet_NaN());
  slot->set_buffer(tensor_of(nan, input.shape, gradients).on(device));
  return slot;
}

Slots make_slots(const Case& c, Device device, DType gradients = DType::kF32) {
  Slots slots;
  for (const Input& input : c.inputs) slots.push_back(make_slot(input, device, gradients));
  return slots;
}

// Gradients stay in the slots, so that a second run accumulates in those of parameters.
Outcome run(const Case& c, const ops::BoundOps& ops, const std::vector<Tensor>& tensors, const Slots& slots,
            const std::function<Tensor(const Tensor& y)>& seed) {
  Tape tape;
  std::vector<Var> vars;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (slots[i] && !slots[i]->persistent()) slots[i]->take();
    vars.push_back({tensors[i], slots[i]});
  }
  const Result result = c.run(tape, ops, vars);
  Outcome outcome{result.y.value, {}, {}};
  for (const Tensor& other : result.others)
    for (const double value : values_of(other)) outcome.others.push_back(value);
  if (c.root)
    tape.backward(result.y);
  else
    tape.backward(result.y, seed(result.y.value));
  for (size_t i = 0; i < slots.size(); ++i) {
    outcome.grads.emplace_back();
    if (slots[i] == nullptr) continue;
    if (!slots[i]->filled()) {  // nothing arrived: zero
      outcome.grads.back().resize(static_cast<size_t>(tensors[i].numel()));
      continue;
    }
    EXPECT_EQ(slots[i]->grad().shape(), tensors[i].shape()) << c.inputs[i].name;
    outcome.grads.back() = values_of(slots[i]->grad());
  }
  return outcome;
}

std::function<Tensor(const Tensor&)> compact_seed(const Doubles& cotangent) {
  return [&cotangent](const Tensor& y) { return tensor_of(cotangent, y.shape(), y.dtype()).on(y.device()); };
}

std::function<Tensor(const Tensor&)> strided_seed(const Doubles& cotangent) {
  return [&cotangent](const Tensor& y) {
    return padded_tensor_of(cotangent, y.shape(), y.dtype(), {y.ndim() - 1, 1, 2}, y.device());
  };
}

double objective_difference(const Case& c, const Expected& e, size_t input, const Slope& slope, double step) {
  const auto at = [&](double distance) {
    std::vector<Doubles> moved = e.values;
    Doubles& x = moved[input];
    if (slope.direction.empty()) x[slope.element] += distance;
    for (size_t i = 0; i < slope.direction.size(); ++i) x[i] += distance * slope.direction[i];
    return c.reference(moved);
  };
  const Doubles above = at(step), below = at(-step);
  double difference = 0;
  for (size_t i = 0; i < e.cotangent.size(); ++i) difference += e.cotangent[i] * (above[i] - below[i]);
  return difference / (2 * step);
}

// One random direction, which every element takes part in, and single elements.
std::vector<Slope> central_differences(const Case& c, const Expected& e, size_t input) {
  const Doubles& x = e.values[input];
  std::vector<Slope> slopes;
  if (x.empty()) return slopes;
  const Random random(input + 77, RandomPurpose::kData);
  const auto samples = static_cast<size_t>(c.samples);
  const size_t count = x.size() <= std::max<size_t>(samples, 1) ? x.size() : samples;
  for (size_t i = 0; i < count; ++i)
    slopes.push_back({count == x.size() ? i : static_cast<size_t>(random.below(x.size(), i)), {}, 0});
  Slope all;
  const double length = 1 / std::sqrt(static_cast<double>(x.size()));
  for (size_t i = 0; i < x.size(); ++i) all.direction.push_back(random.bits(i) % 2 == 0 ? length : -length);
  slopes.push_back(std::move(all));
  double square = 0;
  for (const double value : x) square += value * value;
  const double step = 1e-4 * std::max(1.0, std::sqrt(square / static_cast<double>(x.size())));
  for (Slope& slope : slopes) slope.value = objective_difference(c, e, input, slope, step);
  return slopes;
}

// Only the values, without a gradient.
Outcome run_inference(const Case& c, const ops::BoundOps& ops, const std::vector<Tensor>& tensors) {
  Tape tape(false);
  std::vector<Var> vars;
  for (const Tensor& tensor : tensors) vars.push_back(tape.constant(tensor));
  const Result result = c.run(tape, ops, vars);
  Outcome outcome{result.y.value, {}, std::vector<Doubles>(tensors.size())};
  for (const Tensor& other : result.others)
    for (const double value : values_of(other)) outcome.others.push_back(value);
  return outcome;
}

void split(Expected& e, const Doubles& all, size_t count) {
  e.y.assign(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count));
  e.others.assign(all.begin() + static_cast<std::ptrdiff_t>(count), all.end());
}

Expected expect(const Case& c, DType dtype, const ops::BoundOps& baseline) {
  Expected e;
  for (const Input& input : c.inputs)
    e.values.push_back(values_of(tensor_of(input.values, input.shape, dtype)));
  if (c.inference) {
    e.y_shape = run_inference(c, baseline, lay_out(c, e.values, DType::kF32, {})).y.shape();
    split(e, c.reference(e.values), static_cast<size_t>(e.y_shape.numel()));
    return e;
  }
  const auto seed = [&](const Tensor& y) {
    e.y_shape = y.shape();
    e.cotangent = c.root ? Doubles{1} : values_of(tensor_of(normal(999, y.shape()), y.shape(), dtype));
    return tensor_of(e.cotangent, y.shape(), y.dtype());
  };
  const Outcome outcome = run(c, baseline, lay_out(c, e.values, DType::kF32, {}), make_slots(c, {}), seed);
  if (c.root) seed(outcome.y);
  e.grads = outcome.grads;
  split(e, c.reference(e.values), e.cotangent.size());
  for (size_t i = 0; i < c.inputs.size(); ++i) e.slopes.push_back(central_differences(c, e, i));
  return e;
}

double scale_of(const Doubles& values, double floor) {
  for (const double value : values) floor = std::max(floor, std::fabs(value));
  return floor;
}

void check_grads(const Case& c, const Expected& e, const Outcome& found, double tolerance) {
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    const Doubles& grad = found.grads[i];
    if (grad.empty()) continue;
    const std::string& name = c.inputs[i].name;
    EXPECT_TRUE(close(grad, e.grads[i], tolerance, c.floor))
        << "gradient of " << name << " compared with the composition's";
    const double allowed = tolerance * scale_of(e.grads[i], c.floor);
    for (const Slope& slope : e.slopes[i]) {
      double value = slope.direction.empty() ? grad[slope.element] : 0;
      for (size_t k = 0; k < slope.direction.size(); ++k) value += slope.direction[k] * grad[k];
      EXPECT_NEAR(value, slope.value, allowed)
          << "gradient of " << name << " compared with central differences, "
          << (slope.direction.empty() ? fmt::format("element {}", slope.element)
                                      : "along a random direction");
    }
  }
}

void check_forward(const Case& c, const Expected& e, DType dtype, const Outcome& found, double tolerance) {
  EXPECT_EQ(found.y.shape(), e.y_shape);
  EXPECT_EQ(found.y.dtype(), output_dtype(c, dtype));
  EXPECT_TRUE(c.view || found.y.is_contiguous());
  EXPECT_TRUE(close(values_of(found.y), e.y, tolerance, c.floor)) << "y";
  EXPECT_TRUE(close(found.others, e.others, tolerance, c.floor)) << "the outputs other than y";
}

void check_same_bits(const Case& c, const Outcome& found, const Outcome& first, bool with_parameters) {
  EXPECT_EQ(values_of(found.y), values_of(first.y)) << "y";
  EXPECT_EQ(found.others, first.others);
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    if (!with_parameters && c.inputs[i].role == Role::kParameter) continue;
    EXPECT_EQ(found.grads[i], first.grads[i]) << "gradient of " << c.inputs[i].name;
  }
}

// Parameters accumulate; everything repeats bit by bit, also with one thread.
void check_repeats(const Case& c, const Expected& e, const BoundKernel& kernel,
                   const std::vector<Tensor>& tensors, const Slots& slots, const Outcome& first,
                   double tolerance) {
  const ops::BoundOps& ops = kernel.ops;
  {
    SCOPED_TRACE("second run, accumulating");
    const Outcome second = run(c, ops, tensors, slots, compact_seed(e.cotangent));
    check_same_bits(c, second, first, false);
    for (size_t i = 0; i < c.inputs.size(); ++i) {
      if (c.inputs[i].role == Role::kVariable) continue;
      Doubles twice = first.grads[i];
      for (double& value : twice) value *= 2;
      EXPECT_TRUE(close(second.grads[i], twice, tolerance, c.floor)) << "gradient of " << c.inputs[i].name;
    }
  }
  const auto again = [&] {
    for (const auto& slot : slots) slot->reset();
    check_same_bits(c, run(c, ops, tensors, slots, compact_seed(e.cotangent)), first, true);
  };
  for (int i = 1; i < c.repeats && kernel.provider != ops::kEager && !testing::Test::HasFailure(); ++i)
    again();
  SCOPED_TRACE("with one thread, after a reset");
  const Threads one(1);
  again();
}

// Parameters' gradients in bfloat16; GPUs then need the parameters in bfloat16, too.
void check_narrow_gradients(const Case& c, const Expected& e, DType dtype, const BoundKernel& kernel,
                            const std::vector<Tensor>& tensors, double tolerance) {
  if (dtype != DType::kBF16 && kernel.device.type != DeviceType::kCpu) return;
  SCOPED_TRACE("gradients in bfloat16");
  const double rounded = tolerance + 0x1p-8;
  const Slots slots = make_slots(c, kernel.device, DType::kBF16);
  const Outcome first = run(c, kernel.ops, tensors, slots, compact_seed(e.cotangent));
  check_grads(c, e, first, rounded);
  for (size_t i = 0; i < slots.size(); ++i)
    if (c.inputs[i].role == Role::kParameter) {
      EXPECT_EQ(slots[i]->grad().dtype(), DType::kBF16) << c.inputs[i].name;
    }
  if (kernel.deterministic) check_repeats(c, e, kernel, tensors, slots, first, rounded);
}

// Each input alone has a gradient, as a value of the forward pass; the seed is a strided view.
void check_frozen(const Case& c, const Expected& e, const ops::BoundOps& ops,
                  const std::vector<Tensor>& tensors, double tolerance) {
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    SCOPED_TRACE(fmt::format("only {} has a gradient", c.inputs[i].name));
    Slots slots(c.inputs.size());
    slots[i] = std::make_shared<GradSlot>();
    check_grads(c, e, run(c, ops, tensors, slots, strided_seed(e.cotangent)), tolerance);
  }
}

void check_inference(const Case& c, const Expected& e, const ops::BoundOps& ops,
                     const std::vector<Tensor>& tensors, double tolerance) {
  for (const bool recording : {true, false}) {
    SCOPED_TRACE(recording ? "all inputs frozen" : "a tape that does not record");
    Tape tape(recording);
    std::vector<Var> vars;
    for (size_t i = 0; i < tensors.size(); ++i)
      vars.push_back(recording
                         ? tape.constant(tensors[i])
                         : tape.leaf({tensors[i], make_slot(c.inputs[i], tensors[i].device(), DType::kF32)}));
    const Result result = c.run(tape, ops, vars);
    EXPECT_FALSE(result.y.requires_grad());
    EXPECT_EQ(tape.size(), 0u);
    EXPECT_TRUE(close(values_of(result.y.value), e.y, tolerance, c.floor)) << "y";
  }
}

void check_values_and_gradients(const Case& c, const Expected& e, DType dtype, const BoundKernel& kernel,
                                const std::vector<Tensor>& tensors, const Tolerances& tolerance) {
  const Slots slots = make_slots(c, kernel.device);
  const Outcome first = run(c, kernel.ops, tensors, slots, compact_seed(e.cotangent));
  check_forward(c, e, dtype, first, tolerance.forward);
  check_grads(c, e, first, tolerance.grad);
  if (kernel.deterministic) check_repeats(c, e, kernel, tensors, slots, first, tolerance.grad);
  check_narrow_gradients(c, e, dtype, kernel, tensors, tolerance.grad);
  check_frozen(c, e, kernel.ops, tensors, tolerance.grad);
  check_inference(c, e, kernel.ops, tensors, tolerance.forward);
}

void check_values(const Case& c, const Expected& e, DType dtype, const ops::BoundOps& ops,
                  const std::vector<Tensor>& tensors, double tolerance) {
  const Outcome first = run_inference(c, ops, tensors);
  check_forward(c, e, dtype, first, tolerance);
  check_same_bits(c, run_inference(c, ops, tensors), first, true);
  const Threads one(1);
  check_same_bits(c, run_inference(c, ops, tensors), first, true);
}

}  // namespace

void check_primitives(const Case& c) {
  std::vector<BoundKernel> places;
  for (const HardwareFacts& machine : machines()) places.push_back({"primitives", {}, machine.device});
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) check_case(c, dtype, {}, places);
}

void check_case(const Case& c, DType dtype, const ops::BoundOps& baseline,
                const std::vector<BoundKernel>& kernels) {
  const Expected e = expect(c, dtype, baseline);
  const Tolerances tolerance = tolerances(c, dtype);
  for (const BoundKernel& kernel : kernels) {
    SCOPED_TRACE(
        fmt::format("{}, {}, {}, {}", kernel.provider, to_string(kernel.device), to_string(dtype), c.name));
    const Threads two(2);
    const std::vector<Tensor> tensors = lay_out(c, e.values, dtype, kernel.device);
    if (c.inference)
      check_values(c, e, dtype, kernel.ops, tensors, tolerance.forward);
    else
      check_values_and_gradients(c, e, dtype, kernel, tensors, tolerance);
    for (size_t i = 0; i < tensors.size(); ++i)
      EXPECT_EQ(values_of(tensors[i]), e.values[i]) << "the op changed its input " << c.inputs[i].name;
  }
}

}  // namespace temper::op_testing
