#include "ops/adamw/adamw.h"

#include <cmath>

#include "tests/support/op_testing.h"

namespace temper::ops {
namespace {

using namespace op_testing;

const RequiredKernels<AdamW> kAdamWKernels{
    {}, kAll, {{"simd", "simd", kCpu, kWide}, {"cuda", "cuda", kGpu, kWide}}};

struct Options {
  DType dtype = DType::kF32;
  bool master = true;
  DType grads = DType::kF32, moments = DType::kF32;
  std::optional<float> grad_norm = {};  // the limit is 1
  double grad_scale = 1;
  int64_t first_step = 1;
  float eps = 1e-8f;
  bool some_wide = false;  // every other value is float32 and its own master
};

// The parameters of one run: weights and moments in double next to the slots of the op.
struct Reference {
  Doubles w, m, v;
};

Reference reference_of(const AdamW::Slot& slot) {
  return {values_of(slot.master.defined() ? slot.master : slot.value), values_of(slot.exp_avg),
          values_of(slot.exp_avg_sq)};
}

// Where a kernel's tensors are.
void move(AdamW& op, Device device) {
  for (AdamW::Slot& slot : op.slots)
    for (Tensor* tensor : {&slot.value, &slot.master, &slot.grad, &slot.exp_avg, &slot.exp_avg_sq})
      if (tensor->defined()) *tensor = tensor->on(device);
  if (op.grad_norm.defined()) op.grad_norm = op.grad_norm.on(device);
}

AdamW make_op(const std::vector<Shape>& shapes, const Options& options, Device device = {}) {
  AdamW op;
  op.lr = 0.01f;
  op.eps = options.eps;
  op.seed = 11;
  op.max_grad_norm = 1;
  if (options.grad_norm) op.grad_norm = Tensor::from(std::vector<float>{*options.grad_norm});
  for (size_t i = 0; i < shapes.size(); ++i) {
    const Tensor weights = tensor_of(normal(i, shapes[i]), shapes[i], DType::kF32);
    AdamW::Slot slot;
    slot.value = weights.to(options.dtype).clone();
    if (options.master) slot.master = weights;
    if (options.some_wide && i % 2 == 1) {
      slot.value = weights;
      slot.master = {};
    }
    slot.grad = Tensor::empty(shapes[i], options.grads);
    slot.exp_avg = Tensor::zeros(shapes[i], options.moments);
    slot.exp_avg_sq = Tensor::zeros(shapes[i], options.moments);
    slot.weight_decay = i % 2 == 0 ? 0.1f : 0;
    op.slots.push_back(slot);
  }
  move(op, device);
  return op;
}

// The first element of each slot never has a gradient.
void set_grads(AdamW& op, const Options& options) {
  for (size_t i = 0; i < op.slots.size(); ++i) {
    const Tensor& grad = op.slots[i].grad;
    Doubles values =
        normal(100 * static_cast<uint64_t>(int64_t{op.step}) + i, grad.shape(), options.grad_scale);
    if (!values.empty()) values[0] = 0;
    grad.copy_from(tensor_of(values, grad.shape(), DType::kF32));
  }
}

void update(const AdamW& op, const AdamW::Slot& slot, Reference& r) {
  const double beta1 = op.beta1, beta2 = op.beta2, lr = op.lr, step = static_cast<double>(int64_t{op.step});
  const Doubles grad = values_of(slot.grad);
  for (size_t i = 0; i < grad.size(); ++i) {
    const double g = double{op.clip()} * grad[i];
    r.m[i] = beta1 * r.m[i] + (1 - beta1) * g;
    r.v[i] = beta2 * r.v[i] + (1 - beta2) * g * g;
    const double m = r.m[i] / (1 - std::pow(beta1, step)), v = r.v[i] / (1 - std::pow(beta2, step));
    r.w[i] -= lr * slot.weight_decay * r.w[i] + lr * m / (std::sqrt(v) + op.eps);
  }
}

// Rounding to bfloat16 keeps each value next to the exact one, and is right on average.
void expect_rounded(const Doubles& found, const Doubles& exact, const char* name) {
  double errors = 0, largest = 0;
  for (const double value : exact) largest = std::max(largest, std::fabs(value));
  const double noise = 2e-7 * largest;  // of float32, where terms cancel
  for (size_t i = 0; i < found.size(); ++i) {
    const double unit = exact[i] == 0 ? 1e-38 : std::exp2(std::floor(std::log2(std::fabs(exact[i]))) - 7);
    const double error = found[i] - exact[i];
    EXPECT_LT(std::fabs(error), unit + noise)
        << name << " " << i << ": " << found[i] << " instead of " << exact[i];
    if (unit > 100 * noise) errors += error / unit;
  }
  const auto count = static_cast<double>(found.size());
  EXPECT_LT(std::fabs(errors), 1 + 3 * std::sqrt(count)) << name << " is rounded to one side";
}

void expect_kept(const Tensor& found, const Doubles& exact, const char* name) {
  if (found.dtype() == DType::kF32)
    EXPECT_TRUE(close(values_of(found), exact, 1e-6)) << name;
  else
    expect_rounded(values_of(found), exact, name);
}

void compare(const AdamW::Slot& slot, const Reference& r) {
  expect_kept(slot.exp_avg, r.m, "exp_avg");
  expect_kept(slot.exp_avg_sq, r.v, "exp_avg_sq");
  const Tensor& weights = slot.master.defined() ? slot.master : slot.value;
  expect_kept(weights, r.w, "weights");
  EXPECT_EQ(values_of(slot.value), values_of(weights.to(slot.value.dtype())))
      << "value is the rounded master";
}

constexpr int kSteps = 4;

std::vector<AdamW::Slot> train(const BoundOps& ops, AdamW op, const Options& options, bool check_every_step) {
  std::vector<Reference> references;
  for (const AdamW::Slot& slot : op.slots) references.push_back(reference_of(slot));
  op.step = options.first_step;
  for (int i = 0; i < kSteps; ++i, op.step = op.step + 1) {
    set_grads(op, options);
    // What is rounded drifts from what would be exact: each step is judged from where it began.
    if (options.moments != DType::kF32 || !options.master)
      for (size_t s = 0; s < op.slots.size(); ++s) references[s] = reference_of(op.slots[s]);
    adamw(ops, op);
    for (size_t s = 0; check_every_step && s < op.slots.size(); ++s) {
      SCOPED_TRACE(
          fmt::format("step {}, slot {} {}", int64_t{op.step}, s, to_string(op.slots[s].value.shape())));
      update(op, op.slots[s], references[s]);
      compare(op.slots[s], references[s]);
    }
  }
  return op.slots;
}

void check(const std::vector<Shape>& shapes, const Options& options = {}) {
  for (const BoundKernel& kernel :
       bind_everywhere<AdamW>({options.dtype, options.master, options.grads, options.moments})) {
    SCOPED_TRACE(fmt::format("{}, {}, {}{}", kernel.provider, to_string(kernel.device),
                             to_string(options.dtype), options.master ? " with master" : ""));
    const Threads two(2);
    const auto first = train(kernel.ops, make_op(shapes, options, kernel.device), options, true);
    const auto same_as_first = [&](const std::vector<AdamW::Slot>& again) {
      for (size_t s = 0; s < again.size(); ++s) {
        EXPECT_EQ(values_of(again[s].exp_avg), values_of(first[s].exp_avg));
        EXPECT_EQ(values_of(again[s].exp_avg_sq), values_of(first[s].exp_avg_sq));
        EXPECT_EQ(values_of(again[s].value), values_of(first[s].value));
      }
    };
    same_as_first(train(kernel.ops, make_op(shapes, options, kernel.device), options, false));
    const Threads one(1);
    same_as_first(train(kernel.ops, make_op(shapes, options, kernel.device), options, false));
  }
}

const std::vector<Shape> kShapes{{1}, {7}, {3, 64}, {0}, {513}, {10, 1000}};

TEST(AdamW, EveryKernelAgrees) {
  check(kShapes);
  check(kShapes, {.master = false});
  check(kShapes, {.dtype = DType::kBF16});
  check(kShapes, {.dtype = DType::kF16});
  check({});
}

TEST(AdamW, SlotsThatAreKeptDifferently) {
  for (const bool master : {true, false})
    check(kShapes, {.dtype = DType::kBF16, .master = master, .grad_norm = 27.f, .some_wide = true});
  check({{0}, {7}, {5}}, {.dtype = DType::kBF16, .some_wide = true});
}

TEST(AdamW, ManyValues) { check({{70'001}, {300, 400}}, {.dtype = DType::kBF16}); }

TEST(AdamW, ClipsToTheNorm) {
  check(kShapes, {.grad_norm = 27.f});
  check(kShapes, {.grad_norm = 0.3f});
  check(kShapes, {.dtype = DType::kBF16, .grad_norm = 1e8f});
}

TEST(AdamW, RoundsStochastically) {
  check({{70'001}, {64, 64}, {3}}, {.dtype = DType::kBF16, .master = false});
  check({{70'001}, {3}},
        {.dtype = DType::kBF16, .master = false, .grads = DType::kBF16, .moments = DType::kBF16});
  check({{501}}, {.moments = DType::kBF16});
  check({{501}}, {.dtype = DType::kBF16, .grads = DType::kBF16});
}

// Rounding up or down depends on every bit of what is rounded, so the CPU's kernels compute the same bits.
TEST(AdamW, SameBitsAsTheCompositionOnTheCpu) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const bool master : {false, true})
      for (const DType grads : {DType::kF32, DType::kBF16})
        for (const DType moments : {DType::kF32, DType::kBF16}) {
          const bool weights = dtype == DType::kBF16 && !master;
          if (!weights && grads == DType::kF32 && moments == DType::kF32) continue;  // nothing is rounded
          const Options options{.dtype = dtype,
                                .master = master,
                                .grads = grads,
                                .moments = moments,
                                .grad_norm = 3.f,
                                .first_step = 1'000};
          const AdamW::Signature signature{dtype, master, grads, moments};
          const std::vector<Shape> shapes{{1}, {70'003}, {9, 61}, {0}, {512}};
          const auto expected =
              train(bind_kernel<AdamW>("eager", signature), make_op(shapes, options), options, false);
          for (const BoundKernel& kernel : bind_every_kernel<AdamW>(signature)) {
            SCOPED_TRACE(fmt::format("{}, {}{}, gradients {}, moments {}", kernel.provider, to_string(dtype),
                                     master ? " with master" : "", to_string(grads), to_string(moments)));
            const auto found = train(kernel.ops, make_op(shapes, options), options, false);
            for (size_t s = 0; s < found.size(); ++s) {
              EXPECT_EQ(values_of(found[s].exp_avg), values_of(expected[s].exp_avg));
              EXPECT_EQ(values_of(found[s].exp_avg_sq), values_of(expected[s].exp_avg_sq));
              EXPECT_EQ(values_of(found[s].value), values_of(expected[s].value));
              if (!master) continue;
              EXPECT_EQ(values_of(found[s].master), values_of(expected[s].master));
            }
          }
        }
}

TEST(AdamW, NumbersThatAreNotFiniteStayThat) {
  const AdamW::Signature signature{DType::kBF16, false, DType::kBF16, DType::kBF16};
  for (const BoundKernel& kernel : bind_everywhere<AdamW>(signature)) {
    AdamW op = make_op(
        {{40}}, {.dtype = DType::kBF16, .master = false, .grads = DType::kBF16, .moments = DType::kBF16});
    op.slots[0].grad.copy_from(tensor_of(Doubles(40, NAN), {40}, DType::kF32));
    move(op, kernel.device);
    adamw(kernel.ops, op);
    for (const Tensor& tensor : {op.slots[0].value, op.slots[0].exp_avg, op.slots[0].exp_avg_sq})
      for (const double value : values_of(tensor)) EXPECT_TRUE(std::isnan(value)) << kernel.provider;
  }
}

TEST(AdamW, ChangesNothingWhenTheNormIsNotFinite) {
  for (const float norm : {INFINITY, NAN})
    for (const BoundKernel& kernel : bind_everywhere<AdamW>({})) {
      AdamW op = make_op({{40}}, {.grad_norm = norm}, kernel.device);
      set_grads(op, {});
      const Reference before = reference_of(op.slots[0]);
      adamw(kernel.ops, op);
      EXPECT_EQ(values_of(op.slots[0].master), before.w) << kernel.provider;
      EXPECT_EQ(values_of(op.slots[0].exp_avg), before.m) << kernel.provider;
    }
}

TEST(AdamW, LargeAndSmallGradients) {
  check(kShapes, {.grad_scale = 1e6});
  check(kShapes, {.grad_scale = 1e-7});
  check(kShapes, {.grad_scale = 1e-4, .eps = 1e-3f});
}

// Late in a run the bias corrections are 1, and the first steps' are the hardest to form in float32.
TEST(AdamW, LateSteps) { check(kShapes, {.first_step = 1'000'000}); }

TEST(AdamW, ChecksAtTheFrontDoor) {
  const BoundOps ops = bind_kernel<AdamW>("eager", {});
  const auto expect = [&](const std::function<void(AdamW&)>& change, std::string_view message) {
    AdamW op = make_op({{4, 3}}, {.dtype = DType::kBF16});
    change(op);
    expect_error([&] { adamw(ops, op); }, message);
  };
  const auto f32 = [](Shape shape) { return Tensor::zeros(shape, DType::kF32); };
  expect([](AdamW& op) { op.slots[0].value = {}; }, "[adamw] value is missing");
  expect(
      [](AdamW& op) {
        op.slots[0].value = Tensor::zeros({4, 3}, DType::kI32);
      },
      "[adamw] value is int32, needs float32, bfloat16 or float16");
  expect(
      [](AdamW& op) {
        op.slots[0].value = Tensor::zeros({4, 3}, DType::kF16);
        op.slots[0].master = {};
      },
      "[adamw] value is float16 without master weights, needs float32 or bfloat16");
  expect([](AdamW& op) { op.slots[0].exp_avg = op.slots[0].value; },
         "[adamw] exp_avg_sq is float32, needs bfloat16");
  expect([](AdamW& op) { op.grad_norm = Tensor::zeros({2}, DType::kF32); },
         "[adamw] grad_norm is [2], needs [1]");
  expect([](AdamW& op) { op.slots[0].master = op.slots[0].value; },
         "[adamw] master is bfloat16, needs float32");
  expect([&](AdamW& op) { op.slots[0].master = f32({3, 4}); }, "[adamw] master is [3, 4], needs [4, 3]");
  expect(
      [&](AdamW& op) {
        op.slots[0].master = f32({3, 4}).transpose(0, 1);
      },
      "[adamw] master [4, 3] has strides [1, 4], needs them without gaps");
  expect([&](AdamW& op) { op.slots[0].grad = f32({12}); }, "[adamw] grad is [12], needs [4, 3]");
  expect(
      [](AdamW& op) {
        op.slots[0].grad = Tensor::zeros({4, 3}, DType::kF16);
      },
      "[adamw] grad is float16, needs float32");
  expect([](AdamW& op) { op.slots[0].grad = {}; }, "[adamw] grad is missing");
  expect(
      [&](AdamW& op) {
        op.slots[0].exp_avg = f32({4, 4}).narrow(1, 0, 3);
      },
      "[adamw] exp_avg [4, 3] has strides [4, 1], needs them without gaps");
  expect([](AdamW& op) { op.slots[0].exp_avg_sq = {}; }, "[adamw] exp_avg_sq is missing");
  expect(
      [](AdamW& op) {
        op.slots[0].value = Tensor::zeros({3, 4}, DType::kBF16).transpose(0, 1);
      },
      "[adamw] value [4, 3] has strides [1, 4], needs them without gaps");
  expect([](AdamW& op) { op.step = 0; }, "[adamw] step is 0, needs to count from 1");
}

}  // namespace
}  // namespace temper::ops
