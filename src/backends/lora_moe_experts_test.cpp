// The kernels of lora_moe_experts compared with sums in double precision, on the CPU and on a GPU if there
// is one.
#include "ops/lora_moe_experts/lora_moe_experts.h"

#include <cmath>
#include <functional>
#include <numeric>

#include "backends/test_support.h"
#include "device/facts.h"
#include "tests/support/gpu.h"

namespace temper::backends {
namespace {

using ops::LoraMoeExperts, ops::MoeExperts;
using Numbers = std::vector<double>;

struct SliceCase {
  int64_t column, outputs, rank;
  float scale = 1;
};
struct TestCase {
  int64_t tokens, hidden, width, experts, top_k;
  std::vector<SliceCase> gate_up, down;
  bool crowded = false;  // all tokens choose the same experts

  std::string name() const {
    std::string ranks;
    for (const auto* slices : {&gate_up, &down})
      for (const SliceCase& s : *slices) ranks += fmt::format(" {} at {}", s.rank, s.column);
    return fmt::format("{} tokens, {} by {}, {} of {} experts{}, ranks{}", tokens, hidden, width, top_k,
                       experts, crowded ? ", crowded" : "", ranks);
  }
  MoeExperts::Signature signature(DType dtype) const { return {dtype, hidden, width, experts, top_k}; }
};
// Slices of gate, up and down of one rank.
TestCase with_ranks(TestCase c, int64_t rank) {
  c.gate_up = {{0, c.width, rank, 2.0f}, {c.width, c.width, rank, 0.5f}};
  c.down = {{0, c.hidden, rank, 1.5f}};
  return c;
}

std::vector<int32_t> choose(const TestCase& c) {
  std::mt19937 engine(5);
  std::vector<int32_t> order(static_cast<size_t>(c.experts)), chosen;
  std::iota(order.begin(), order.end(), 0);
  for (int64_t t = 0; t < c.tokens; ++t) {
    if (!c.crowded) std::shuffle(order.begin(), order.end(), engine);
    chosen.insert(chosen.end(), order.begin(), order.begin() + c.top_k);
  }
  return chosen;
}

Tensor filled(const Shape& shape, float value) {
  const Tensor tensor = Tensor::empty(shape, DType::kF32);
  for (float& element : tensor.values<float>()) element = value;
  return tensor;
}

struct Operands {
  LoraMoeExperts op;  // on the CPU, in the kernel's dtype
  Tensor dy;

  Operands(const TestCase& c, DType dtype) : dy(random_tensor({c.tokens, c.hidden}, dtype, 2)) {
    op.experts = {.x = random_tensor({c.tokens, c.hidden}, dtype, 1),
                  .ids = Tensor::from(choose(c)).reshape({c.tokens, c.top_k}),
                  .weights = random_tensor({c.tokens, c.top_k}, DType::kF32, 3),
                  .gate_up = matrix(c.experts * 2 * c.width, c.hidden, dtype, 4),
                  .down = matrix(c.experts * c.hidden, c.width, dtype, 5),
                  .experts = c.experts};
    op.gate_up = update(c.gate_up, c.experts, c.hidden, dtype);
    op.down = update(c.down, c.experts, c.width, dtype);
  }
  static Tensor matrix(int64_t rows, int64_t columns, DType dtype, int seed) {
    return random_tensor({rows, columns}, dtype, static_cast<unsigned>(seed),
                         1 / std::sqrt(static_cast<float>(columns)));
  }
  static LoraMoeExperts::Update update(const std::vector<SliceCase>& slices, int64_t experts, int64_t in,
                                       DType dtype) {
    LoraMoeExperts::Update made;
    int64_t ranks = 0;
    for (const SliceCase& s : slices) {
      made.slices.push_back({s.column, matrix(experts * s.outputs, s.rank, dtype, 7 + int(ranks)), s.scale});
      ranks += s.rank;
    }
    if (ranks > 0) made.a = matrix(experts * ranks, in, dtype, 6);
    return made;
  }
  // Some of the tokens, on the device.
  LoraMoeExperts on(Device device, int64_t tokens) const {
    LoraMoeExperts there = op;
    MoeExperts& e = there.experts;
    for (Tensor* rows : {&e.x, &e.ids, &e.weights}) *rows = rows->narrow(0, 0, tokens).on(device);
    for (Tensor* whole : {&e.gate_up, &e.down}) *whole = whole->on(device);
    for (LoraMoeExperts::Update* update : {&there.gate_up, &there.down}) {
      if (update->a.defined()) update->a = update->a.on(device);
      for (auto& slice : update->slices) slice.b = slice.b.on(device);
    }
    return there;
  }
};

Numbers numbers(const Tensor& tensor) {
  const Tensor wide = tensor.to(DType::kF32);
  return {wide.data<float>(), wide.data<float>() + wide.numel()};
}

// Calls f(expert, slice, first of its ranks, output, rank): all numbers of B.
template <class F>
void for_each_b(const LoraMoeExperts::Update& update, int64_t experts, F f) {
  for (int64_t e = 0; e < experts; ++e) {
    int64_t first = 0;
    for (size_t s = 0; s < update.slices.size(); ++s) {
      const Tensor& b = update.slices[s].b;
      for (int64_t o = 0; o < b.dim(0) / experts; ++o)
        for (int64_t r = 0; r < b.dim(1); ++r) f(e, s, first, o, r);
      first += b.dim(1);
    }
  }
}

// The matrices with the update, and its gradients from theirs.
struct Merged {
  const LoraMoeExperts::Update& update;
  int64_t experts, outputs, in, ranks = 0;
  Numbers matrix, dmatrix, a;
  std::vector<Numbers> b;

  Merged(const LoraMoeExperts::Update& u, const Tensor& frozen, int64_t count)
      : update(u),
        experts(count),
        outputs(frozen.dim(0) / count),
        in(frozen.dim(1)),
        matrix(numbers(frozen)),
        dmatrix(matrix.size()) {
    if (u.slices.empty()) return;
    a = numbers(u.a);
    ranks = u.a.dim(0) / experts;
    for (const auto& slice : u.slices) b.push_back(numbers(slice.b));
    visit([&](double b_value, size_t w, size_t at_a, size_t, size_t) { matrix[w] += b_value * a[at_a]; });
  }
  // f(scale · B's number, place in the matrix, in A, slice, place in B) for each input.
  template <class F>
  void visit(F f) const {
    for_each_b(update, experts, [&](int64_t e, size_t s, int64_t first, int64_t o, int64_t r) {
      const auto& slice = update.slices[s];
      const auto at_b = static_cast<size_t>((e * (slice.b.dim(0) / experts) + o) * slice.b.dim(1) + r);
      for (int64_t i = 0; i < in; ++i)
        f(slice.scale * b[s][at_b], static_cast<size_t>((e * outputs + slice.column + o) * in + i),
          static_cast<size_t>((e * ranks + first + r) * in + i), s, at_b);
    });
  }
  // Those of A and of every B.
  std::vector<Tensor> gradients() const {
    Numbers da(a.size());
    std::vector<Numbers> db;
    for (const Numbers& own : b) db.emplace_back(own.size());
    visit([&](double b_value, size_t w, size_t at_a, size_t s, size_t at_b) {
      da[at_a] += b_value * dmatrix[w];
      db[s][at_b] += static_cast<double>(update.slices[s].scale) * a[at_a] * dmatrix[w];
    });
    std::vector<Tensor> all;
    if (!update.slices.empty()) all.push_back(tensor(da, update.a.shape()));
    for (size_t s = 0; s < db.size(); ++s) all.push_back(tensor(db[s], update.slices[s].b.shape()));
    return all;
  }
  static Tensor tensor(const Numbers& from, const Shape& shape) {
    const Tensor made = Tensor::empty(shape, DType::kF32);
    std::transform(from.begin(), from.end(), made.data<float>(),
                   [](double v) { return static_cast<float>(v); });
    return made;
  }
};

// y, dx, dweights and the updates' gradients, as moe_experts defines them with merged matrices.
std::vector<Tensor> reference(const TestCase& c, const Operands& o) {
  Merged up(o.op.gate_up, o.op.experts.gate_up, c.experts), down(o.op.down, o.op.experts.down, c.experts);
  const auto hidden = static_cast<size_t>(c.hidden), width = static_cast<size_t>(c.width);
  const Numbers x = numbers(o.op.experts.x), dy = numbers(o.dy), weights = numbers(o.op.experts.weights);
  Numbers y(x.size()), dx(x.size()), dweights(weights.size());
  for (size_t choice = 0; choice < weights.size(); ++choice) {
    const size_t t = choice / static_cast<size_t>(c.top_k) * hidden,
                 e = static_cast<size_t>(o.op.experts.ids.data<int32_t>()[choice]);
    const double weight = weights[choice];
    for (size_t f = 0; f < width; ++f) {
      const size_t gates = (e * 2 * width + f) * hidden, ups = gates + width * hidden;
      double g = 0, u = 0, dinner = 0;
      for (size_t h = 0; h < hidden; ++h) {
        g += up.matrix[gates + h] * x[t + h];
        u += up.matrix[ups + h] * x[t + h];
        dinner += down.matrix[(e * hidden + h) * width + f] * dy[t + h];
      }
      const double s = 1 / (1 + std::exp(-g)), product = g * s * u;
      const double dg = weight * dinner * u * s * (1 + g * (1 - s)), du = weight * dinner * g * s;
      dweights[choice] += dinner * product;
      for (size_t h = 0; h < hidden; ++h) {
        y[t + h] += weight * product * down.matrix[(e * hidden + h) * width + f];
        down.dmatrix[(e * hidden + h) * width + f] += weight * product * dy[t + h];
        dx[t + h] += dg * up.matrix[gates + h] + du * up.matrix[ups + h];
        up.dmatrix[gates + h] += dg * x[t + h];
        up.dmatrix[ups + h] += du * x[t + h];
      }
    }
  }
  std::vector<Tensor> all{Merged::tensor(y, o.dy.shape()), Merged::tensor(dx, o.dy.shape()),
                          Merged::tensor(dweights, o.op.experts.weights.shape())};
  for (const Merged* part : {&up, &down})
    for (const Tensor& gradient : part->gradients()) all.push_back(gradient);
  return all;
}

// What the pool gives next was not zero.
void poison(Device device) {
  constexpr int64_t kBytes = 8 << 20;
  const float nan = std::nanf("");
  for (const int64_t bytes : {kBytes, kBytes / 8, kBytes / 64, kBytes / 512}) {
    const Tensor host = filled({bytes / 4}, nan);
    const Tensor taken = Tensor::empty({bytes / 4}, DType::kF32, MemoryTag::kWorkspace, device);
    taken.copy_from(host);
  }
}

std::vector<Tensor> run(const ops::Kernel<LoraMoeExperts>& kernel, const TestCase& c, const Operands& o,
                        Device device, float before, bool accumulate) {
  const LoraMoeExperts op = o.on(device, c.tokens);
  std::vector<Tensor> gradients;
  const auto targets = [&](const LoraMoeExperts::Update& update) {
    const auto target = [&](const Tensor& like) {
      gradients.push_back(filled(like.shape(), before).on(device));
      return GradTarget{gradients.back(), accumulate};
    };
    LoraMoeExperts::UpdateTargets made;
    if (!update.slices.empty()) made.a = target(update.a);
    for (const auto& slice : update.slices) made.b.push_back(target(slice.b));
    return made;
  };
  LoraMoeExperts::Targets all{true, true, {}, {}};
  all.gate_up = targets(op.gate_up);
  all.down = targets(op.down);
  const Tensor dy = o.dy.on(device);
  poison(device);
  const LoraMoeExperts::Output out = kernel.forward(op, true);
  poison(device);
  const MoeExperts::Grads grads = kernel.backward(op, out, dy, all);
  // What is not wanted is not made, and changes nothing else.
  EXPECT_TRUE(same_bits(kernel.forward(op, false).y.on({}), out.y.on({}))) << c.name();
  LoraMoeExperts::Targets none;
  none.x = true;
  none.gate_up.b.resize(op.gate_up.slices.size());
  none.down.b.resize(op.down.slices.size());
  EXPECT_TRUE(same_bits(kernel.backward(op, out, dy, none).x.on({}), grads.x.on({}))) << c.name();
  std::vector<Tensor> found{out.y.on({}), grads.x.on({}), grads.weights.on({})};
  for (const Tensor& gradient : gradients) found.push_back(gradient.on({}));
  return found;
}

using Check = std::function<void(const std::string&, const ops::Kernel<LoraMoeExperts>&, const TestCase&,
                                 DType, Device)>;

void check(const std::string& name, const ops::Kernel<LoraMoeExperts>& kernel, const TestCase& c, DType dtype,
           Device device) {
  const Operands operands(c, dtype);
  std::vector<Tensor> expected = reference(c, operands);
  constexpr size_t kFirstGradient = 3;  // y, dx and dweights come before
  for (const bool accumulate : {false, true}) {
    const float before = accumulate ? 0.5f : std::nanf("");
    if (accumulate)
      for (size_t i = kFirstGradient; i < expected.size(); ++i)
        for (float& value : expected[i].values<float>()) value += before;
    const auto found = run(kernel, c, operands, device, before, accumulate),
               again = run(kernel, c, operands, device, before, accumulate);
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_LT(difference(found[i].to(DType::kF32), expected[i]), dtype == DType::kF32 ? 2e-5 : 2e-2)
          << name << ", " << to_string(dtype) << ", " << c.name() << ": result " << i;
      EXPECT_TRUE(same_bits(found[i], again[i])) << name << ", " << c.name() << ": result " << i;
    }
  }
}

// A token's result has the same bits in batches of 1, 7 and 64 as in the whole.
void check_batches(const std::string& name, const ops::Kernel<LoraMoeExperts>& kernel, const TestCase& c,
                   DType dtype, Device device) {
  if (!kernel.batch_invariant) return;
  const Operands operands(c, dtype);
  const Tensor whole = kernel.forward(operands.on(device, c.tokens), false).y.on({});
  for (const int64_t tokens : {1, 7, 64}) {
    const Tensor part = kernel.forward(operands.on(device, tokens), false).y.on({});
    EXPECT_TRUE(same_bits(part, whole.narrow(0, 0, tokens)))
        << name << ", " << to_string(dtype) << ", " << tokens << " of " << c.name();
  }
}

// With every kernel of the hardware that accepts the case.
void with_kernels(const HardwareFacts& facts, const std::vector<TestCase>& cases, const Check& check) {
  int accepted = 0;
  for (const auto& [name, kernel] : ops::kernels<LoraMoeExperts>().entries()) {
    if (kernel.compose != nullptr || kernel.hardware != facts.hardware) continue;
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16})
      for (const TestCase& c : cases)
        if (!kernel.accepts(c.signature(dtype), facts))
          check(std::string(name), kernel, c, dtype, facts.device), ++accepted;
  }
  EXPECT_GT(accepted, 0);
}

std::vector<TestCase> of_ranks(const TestCase& c, const std::vector<int64_t>& ranks) {
  std::vector<TestCase> all;
  for (const int64_t rank : ranks) all.push_back(with_ranks(c, rank));
  return all;
}

std::vector<TestCase> ranks() { return of_ranks({150, 72, 40, 5, 2, {}, {}}, {1, 8, 16, 24, 64, 80}); }
std::vector<TestCase> loads() {
  std::vector<TestCase> all;
  for (const TestCase& c : {TestCase{1, 264, 136, 16, 8, {}, {}}, TestCase{7, 72, 40, 64, 8, {}, {}},
                            TestCase{200, 64, 32, 1, 1, {}, {}}, TestCase{130, 64, 48, 4, 4, {}, {}},
                            TestCase{400, 64, 40, 9, 1, {}, {}, true}, TestCase{300, 576, 328, 3, 2, {}, {}},
                            TestCase{0, 64, 32, 4, 2, {}, {}}})
    all.push_back(with_ranks(c, 16));
  return all;
}
// Slices that reach over gate and up, or over a part; of unlike ranks; an update that is absent.
std::vector<TestCase> slices() {
  const TestCase c{150, 72, 40, 5, 2, {}, {}};
  const auto with = [&](std::vector<SliceCase> gate_up, std::vector<SliceCase> down) {
    TestCase made = c;
    made.gate_up = std::move(gate_up);
    made.down = std::move(down);
    return made;
  };
  return {with({{0, 80, 16, 2.0f}}, {}),
          with({}, {{0, 72, 8, 0.25f}}),
          with({{40, 40, 4, 3.0f}}, {{8, 24, 5}}),
          with({{0, 40, 3, 2.0f}, {40, 40, 17, 0.5f}}, {{0, 72, 8}}),
          with({{5, 21, 6}, {50, 9, 70, 2.0f}}, {{3, 7, 2, 3.0f}, {31, 40, 9}}),
          with({}, {})};
}
std::vector<TestCase> odd_sizes() { return of_ranks({130, 37, 21, 6, 3, {}, {}}, {3, 16}); }
std::vector<TestCase> batches() {
  return {with_ranks({300, 264, 136, 8, 4, {}, {}}, 16), with_ranks({200, 640, 520, 16, 8, {}, {}}, 24)};
}

TEST(LoraMoeExpertsOnCpu, Ranks) { with_kernels(detect_cpu(), ranks(), check); }
TEST(LoraMoeExpertsOnCpu, Loads) { with_kernels(detect_cpu(), loads(), check); }
TEST(LoraMoeExpertsOnCpu, Slices) { with_kernels(detect_cpu(), slices(), check); }
TEST(LoraMoeExpertsOnCpu, OddSizes) { with_kernels(detect_cpu(), odd_sizes(), check); }
TEST(LoraMoeExpertsOnCpu, BatchesOfOtherSizes) { with_kernels(detect_cpu(), batches(), check_batches); }

void with_gpu(const std::vector<TestCase>& cases, const Check& check) {
  if (const std::string why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  with_kernels(detect_hardware("cuda"), cases, check);
}
TEST(LoraMoeExpertsOnGpu, Ranks) { with_gpu(ranks(), check); }
TEST(LoraMoeExpertsOnGpu, Loads) { with_gpu(loads(), check); }
TEST(LoraMoeExpertsOnGpu, Slices) { with_gpu(slices(), check); }
TEST(LoraMoeExpertsOnGpu, OddSizes) { with_gpu(odd_sizes(), check); }
TEST(LoraMoeExpertsOnGpu, BatchesOfOtherSizes) { with_gpu(batches(), check_batches); }

}  // namespace
}  // namespace temper::backends
