#include <cmath>
#include <numeric>

#include "backends/gpu/expert_rows.h"
#include "backends/hopper/expert_products.h"
#include "backends/hopper/experts.h"
#include "backends/hopper/narrow_experts.h"
#include "bench/arguments.h"
#include "bench/gpu/timing.h"
#include "ops/kernel.h"

namespace temper {
namespace {

constexpr const char* kUsage =
    R"(Experts of a mixture on a GPU of compute capability 9.0: the speed of each product, of the sums and of
whole passes, under several loads. bfloat16; timing.h says how times are taken.
An adapter of rank R on all three matrix multiplications is timed as well.
  temper_bench_experts [--tokens N] [--hidden N] [--width N] [--experts N] [--top-k N] [--rank R]
)";

using ops::MoeExperts;

constexpr DType kBrain = DType::kBF16;

struct Sizes {
  int64_t tokens = 8192, hidden = 2048, width = 768, experts = 128, top_k = 8, rank = 16;
};

// Of each token the top_k experts with the largest scores.
enum class Load { kBalanced, kNatural, kZipf, kCrowded };
constexpr std::pair<Load, const char*> kLoads[] = {{Load::kBalanced, "balanced"},
                                                   {Load::kNatural, "natural (random logits)"},
                                                   {Load::kZipf, "Zipf"},
                                                   {Load::kCrowded, "all to the same experts"}};

Tensor choose(const Sizes& s, Load load) {
  const Random random(7, RandomPurpose::kData);
  std::vector<int32_t> chosen;
  std::vector<float> scores(static_cast<size_t>(s.experts));
  std::vector<int32_t> order(scores.size());
  for (int64_t t = 0; t < s.tokens; ++t) {
    for (size_t e = 0; e < scores.size(); ++e) {
      const auto expert = static_cast<int64_t>(e);
      const double uniform = random.uniform(static_cast<uint64_t>(t * s.experts + expert)),
                   gumbel = -std::log(-std::log(std::max(uniform, 1e-12)));
      if (load == Load::kBalanced)
        scores[e] = static_cast<float>(-((expert - t * s.top_k) % s.experts + s.experts) % s.experts);
      else if (load == Load::kCrowded)
        scores[e] = static_cast<float>(-expert);
      else  // Gumbel's numbers choose in proportion to the shares
        scores[e] = static_cast<float>(
            gumbel -
            (load == Load::kZipf ? std::log(1.0 + static_cast<double>(expert * 37 % s.experts)) : 0));
    }
    std::iota(order.begin(), order.end(), 0);
    std::partial_sort(order.begin(), order.begin() + s.top_k, order.end(), [&](int32_t a, int32_t b) {
      return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)];
    });
    chosen.insert(chosen.end(), order.begin(), order.begin() + s.top_k);
  }
  return Tensor::from(chosen).reshape({s.tokens, s.top_k});
}

class Bench {
 public:
  Bench(const Sizes& s, Device device) : s_(s), device_(device), copy_(measured_copy(device)) {
    op_.x = random_values(device, {s.tokens, s.hidden}, kBrain);
    op_.weights = random_values(device, {s.tokens, s.top_k}, DType::kF32);
    op_.gate_up = random_values(device, {s.experts * 2 * s.width, s.hidden}, kBrain, 0.02f);
    op_.down = random_values(device, {s.experts * s.hidden, s.width}, kBrain, 0.02f);
    op_.experts = s.experts;
    dy_ = random_values(device, {s.tokens, s.hidden}, kBrain);
    gate_up_ = update({{0, s.width}, {s.width, s.width}}, s.hidden);
    down_ = update({{0, s.hidden}}, s.width);
  }

  void run(Load load, const char* name) {
    op_.ids = choose(s_, load).on(device_);
    std::printf("\n%s\n| work | time | speed |\n|---|---|---|\n", name);
    const backends::hopper::Experts experts(op_, backends::plan_experts(op_.ids, s_.experts));
    const Tensor items = experts.items();
    const auto rows = [&](int64_t columns, DType dtype = kBrain) {
      return experts.rows_of(columns, MemoryTag::kWorkspace, dtype);
    };
    const int64_t hidden = s_.hidden, width = s_.width;
    const Tensor gate_up = rows(2 * width), inner = rows(width), wide = rows(hidden),
                 dgate_up = rows(2 * width);
    const Tensor dots = rows(backends::hopper::parts_of_dots(width), DType::kF32);
    const Tensor y = Tensor::empty(op_.x.shape(), kBrain, MemoryTag::kWorkspace, device_);
    const double product = 2.0 * static_cast<double>(s_.tokens * s_.top_k * hidden * width);
    const double row_bytes = static_cast<double>(wide.bytes() + y.bytes());
    flops("x gate_upT, swiglu", 2 * product, [&] { experts.multiply_gate_up(items, gate_up, inner); });
    flops("down", product, [&] { experts.multiply(items, op_.down, true, inner, wide); });
    bytes("weighted sum", row_bytes, [&] { backends::sum_choices(experts.plan(), wide, y); });
    flops("backward: dy down, swiglu's gradient", product,
          [&] { experts.differentiate_gate(items, dy_, gate_up, dgate_up, inner, dots); });
    flops("backward: gradient of x's rows", 2 * product,
          [&] { experts.multiply(items, op_.gate_up, false, dgate_up, wide); });
    for (const DType dtype : {DType::kF32, kBrain})
      for (const bool accumulate : {false, true}) {
        const auto target = [&](const Tensor& matrix) {
          return GradTarget{Tensor::zeros(matrix.shape(), dtype, MemoryTag::kGradients, device_), accumulate};
        };
        const std::string how = fmt::format("{}{}", to_string(dtype), accumulate ? ", accumulated" : "");
        const GradTarget dmatrix = target(op_.gate_up);
        flops("gradient of gate_up, " + how, 2 * product,
              [&] { experts.add_gradient(dgate_up, op_.x, false, dmatrix); });
        const GradTarget ddown = target(op_.down);
        flops("gradient of down, " + how, product, [&] { experts.add_gradient(inner, dy_, true, ddown); });
      }
    passes(product);
    updates(experts, items, product);
  }

 private:
  using LoraMoeExperts = ops::LoraMoeExperts;
  // Slices of some columns from one on.
  LoraMoeExperts::Update update(const std::vector<std::pair<int64_t, int64_t>>& slices, int64_t in) const {
    LoraMoeExperts::Update made;
    for (const auto& [column, columns] : slices)
      made.slices.push_back(
          {column, random_values(device_, {s_.experts * columns, s_.rank}, kBrain, 0.02f), 2.0f});
    const auto ranks = static_cast<int64_t>(slices.size()) * s_.rank;
    made.a = random_values(device_, {s_.experts * ranks, in}, kBrain, 0.02f);
    return made;
  }

  // The frozen products with an adapter's updates, what these need, and whole passes; of passes the speed
  // counts the frozen products alone.
  void updates(const backends::hopper::Experts& experts, const Tensor& items, double product) {
    const backends::ExpertPlan& plan = experts.plan();
    const auto rows = [&](int64_t columns) { return experts.rows_of(columns); };
    const int64_t hidden = s_.hidden, width = s_.width;
    const Tensor gate_up = rows(2 * width), inner = rows(width), wide = rows(hidden),
                 dgate_up = rows(2 * width);
    const Tensor low = rows(backends::low_columns(gate_up_, s_.experts)),
                 low_down = rows(backends::low_columns(down_, s_.experts));
    const Tensor of_gate_up = backends::matrices_of_slices(gate_up_, s_.experts, 2 * width),
                 of_down = backends::matrices_of_slices(down_, s_.experts, hidden);
    const auto read = [](const Tensor& from, const Tensor& to) {
      return static_cast<double>(from.bytes() + to.bytes());
    };
    bytes("gate_up's slices side by side", read(of_gate_up, of_gate_up),
          [&] { backends::matrices_of_slices(gate_up_, s_.experts, 2 * width); });
    bytes("low of gate_up, rows gathered", read(wide, low),
          [&] { backends::hopper::narrow_product(plan, op_.x, true, gate_up_.a, true, low); });
    flops("x gate_upT and its update, swiglu", 2 * product, [&] {
      experts.multiply_gate_up(items, gate_up, inner, {low, of_gate_up});
    });
    bytes("low of down", read(inner, low_down),
          [&] { backends::hopper::narrow_product(plan, inner, false, down_.a, true, low_down); });
    flops("down and its update", product, [&] {
      experts.multiply(items, op_.down, true, inner, wide, {low_down, of_down});
    });
    bytes("backward: low of down, dy's rows gathered", read(wide, low_down),
          [&] { backends::hopper::narrow_product(plan, dy_, true, of_down, false, low_down); });
    flops("backward: dy down and its update, swiglu", product, [&] {
      experts.differentiate_gate(items, dy_, gate_up, dgate_up, inner, {}, {low_down, down_.a});
    });
    flops("backward: gradient of x's rows, update", 2 * product, [&] {
      experts.multiply(items, op_.gate_up, false, dgate_up, wide, {low, gate_up_.a});
    });
    const auto target = [&](const Tensor& matrix) {
      return GradTarget{Tensor::zeros(matrix.shape(), DType::kF32, MemoryTag::kGradients, device_), false};
    };
    const GradTarget da = target(gate_up_.a), db = target(down_.slices[0].b);
    bytes("gradient of gate_up's a, rows gathered", read(wide, da.buffer), [&] {
      backends::hopper::narrow_gradient(plan, backends::all_columns(op_.x, true),
                                        backends::all_columns(low, false), true, 1, da);
    });
    bytes("gradient of down's b, rows gathered", read(wide, db.buffer), [&] {
      backends::hopper::narrow_gradient(plan, backends::all_columns(dy_, true),
                                        backends::all_columns(low_down, false), false, 2, db);
    });
    passes_with_updates(product, target);
  }

  template <class Target>
  void passes_with_updates(double product, const Target& target) {
    const LoraMoeExperts op{op_, gate_up_, down_};
    const auto* const kernel = ops::kernels<LoraMoeExperts>().find("hopper");
    const LoraMoeExperts::Output saved = kernel->forward(op, true);
    flops("forward with updates", 3 * product, [&] { kernel->forward(op, true); });
    LoraMoeExperts::Targets targets{true, true, {}, {}};
    for (auto [update, to] : {std::pair{&gate_up_, &targets.gate_up}, std::pair{&down_, &targets.down}}) {
      to->a = target(update->a);
      for (const auto& slice : update->slices) to->b.push_back(target(slice.b));
    }
    flops("backward with updates, all their gradients", 3 * product,
          [&] { kernel->backward(op, saved, dy_, targets); });
    const auto* const frozen = ops::kernels<MoeExperts>().find("hopper");
    const MoeExperts::Output kept = frozen->forward(op_, true);
    flops("backward of frozen experts alone", 3 * product, [&] {
      frozen->backward(op_, kept, dy_, {true, true}, {}, {});
    });
  }

  void passes(double product) {
    const auto* const kernel = ops::kernels<MoeExperts>().find("hopper");
    const MoeExperts::Output saved = kernel->forward(op_, true);
    flops("forward", 3 * product, [&] { kernel->forward(op_, true); });
    const auto target = [&](const Tensor& matrix) {
      return GradTarget{Tensor::zeros(matrix.shape(), kBrain, MemoryTag::kGradients, device_), false};
    };
    const GradTarget gate_up = target(op_.gate_up), down = target(op_.down);
    flops("backward, gradients in bfloat16", 6 * product, [&] {
      kernel->backward(op_, saved, dy_, {true, true}, gate_up, down);
    });
    bytes("plan (ids read, 4 numbers written)", 16.0 * static_cast<double>(op_.ids.numel()),
          [&] { backends::plan_experts(op_.ids, s_.experts); });
  }
  void flops(const std::string& name, double count, const std::function<void()>& work) {
    const double seconds = median_seconds(device_, {work});
    std::printf("| %-45s | %8.1f us | %6.1f TFLOP/s |\n", name.c_str(), seconds * 1e6,
                count / seconds * 1e-12);
  }
  void bytes(const std::string& name, double count, const std::function<void()>& work) {
    const double seconds = median_seconds(device_, {work});
    std::printf("| %-45s | %8.1f us | %6.1f %% of a copy |\n", name.c_str(), seconds * 1e6,
                100 * count / seconds / copy_);
  }

  Sizes s_;
  Device device_;
  double copy_;
  MoeExperts op_;
  Tensor dy_;
  LoraMoeExperts::Update gate_up_, down_;
};

int run(int argc, char** argv) {
  Sizes s;
  std::string word;
  for (BenchArguments arguments(argc, argv, word); arguments.next();)
    if (!arguments.take("--tokens", s.tokens) && !arguments.take("--hidden", s.hidden) &&
        !arguments.take("--width", s.width) && !arguments.take("--experts", s.experts) &&
        !arguments.take("--top-k", s.top_k) && !arguments.take("--rank", s.rank))
      arguments.refuse();
  const HardwareFacts facts = detect_hardware("cuda");
  Bench bench(s, facts.device);
  std::printf("%s, %lld tokens, %lld of %lld experts, %lld by %lld\n", facts.name.c_str(),
              static_cast<long long>(s.tokens), static_cast<long long>(s.top_k),
              static_cast<long long>(s.experts), static_cast<long long>(s.hidden),
              static_cast<long long>(s.width));
  for (const auto& [load, name] : kLoads) bench.run(load, name);
  return 0;
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  return temper::run_benchmark("temper_bench_experts", temper::kUsage, temper::run, argc, argv);
}
