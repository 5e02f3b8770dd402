#include <cmath>
#include <functional>
#include <numeric>

#include "bench/arguments.h"
#include "bench/gpu/gpu_bench.h"
#include "bench/gpu/timing.h"
#include "ops/latent_decode/latent_decode.h"
#include "ops/load_balancing_loss/load_balancing_loss.h"
#include "ops/moe_router/moe_router.h"
#include "tensor/repeated_work.h"

namespace temper {
namespace {

constexpr const char* kUsage =
    R"(The small kernels of mixtures and of latent attention, next to what must move through memory: the bytes
that are read and written once over the time, as a share of the speed of a device-to-device copy in the
same run. Many launches are one graph, so that the host does not count.
  temper_bench_mixtures
)";

constexpr int kRepeats = 20;
constexpr DType kBrain = DType::kBF16;

void report(const GpuBench& bench, const std::string& name, double bytes, const std::function<void()>& run) {
  RepeatedWork many(bench.device(), std::make_shared<Arena>(bench.device()), [&run] {
    for (int i = 0; i < kRepeats; ++i) run();
  });
  for (int i = 0; i < 3; ++i) many.run();
  if (!many.captured()) fail("'{}' was not captured", name);
  const double seconds = median_seconds(bench.device(), {[&many] { many.run(); }}) / kRepeats;
  const double floor = bytes / bench.copy_speed;
  std::printf("| %-52s | %8.2f us | %8.2f us | %5.1f %% |\n", name.c_str(), seconds * 1e6, floor * 1e6,
              100 * floor / seconds);
}

void router(const GpuBench& bench, int64_t tokens, const ops::Routing& routing) {
  const ops::BoundOps ops = bench.bind<ops::MoeRouter>({kBrain, routing.experts, routing.top_k});
  const auto& kernel = ops.get<ops::MoeRouter>();
  ops::MoeRouter op;
  op.routing = routing;
  op.logits = random_values(bench.device(), {tokens, routing.experts}, kBrain);
  const double logits = static_cast<double>(op.logits.bytes()),
               choices = static_cast<double>(8 * tokens * routing.top_k);
  const auto name = [&](const char* what) {
    return fmt::format("router, {} of {}{}, {}", routing.top_k, routing.experts,
                       routing.groups > 1 ? fmt::format(" in {} groups", routing.groups) : "", what);
  };
  report(bench, name("forward"), logits + choices, [&] { kernel.forward(op, false); });
  report(bench, name("forward with sums"), logits + choices, [&] { kernel.forward(op, true); });
  const auto out = kernel.forward(op, true);
  const Tensor dweights = random_values(bench.device(), {tokens, routing.top_k}, DType::kF32),
               dsums = random_values(bench.device(), {routing.experts + 1}, DType::kF32);
  report(bench, name("backward"), 2 * logits + choices, [&] { kernel.backward(op, out, dweights, dsums); });
}

void balance(const GpuBench& bench, int routers, int64_t experts) {
  const ops::BoundOps ops = bench.bind<ops::LoadBalancingLoss>({kBrain, experts});
  const auto& kernel = ops.get<ops::LoadBalancingLoss>();
  ops::LoadBalancingLoss op;
  for (int r = 0; r < routers; ++r) {
    op.counts.push_back(
        Tensor::from(std::vector<int32_t>(static_cast<size_t>(experts + 1), 512)).on(bench.device()));
    op.sums.push_back(random_values(bench.device(), {experts + 1}, DType::kF32));
  }
  const std::string name = fmt::format("load balancing loss of {} routers", routers);
  report(bench, name, static_cast<double>(8 * routers * experts), [&] { kernel.forward(op); });
}

void latent(const GpuBench& bench, DType dtype, int64_t sequences, int64_t heads, int64_t length) {
  constexpr int64_t kNope = 128, kRope = 64, kValue = 128, kRank = 512;
  const ops::BoundOps ops = bench.bind<ops::LatentDecode>({dtype, heads, kNope, kRope, kValue, kRank});
  const auto& kernel = ops.get<ops::LatentDecode>();
  const auto values = [&](const Shape& shape, float scale = 1) {
    return random_values(bench.device(), shape, dtype, scale);
  };
  ops::LatentDecode op;
  op.q = values({sequences, heads, kNope + kRope});
  op.latent = values({sequences, kRank + kRope});
  const int64_t page_tokens = 16, pages = length / page_tokens + 1;
  op.cache = values({sequences * pages, page_tokens, kRank + kRope});
  std::vector<int32_t> starts(static_cast<size_t>(sequences) + 1),
      places(static_cast<size_t>(sequences * pages));
  std::iota(starts.begin(), starts.end(), 0);
  std::iota(places.begin(), places.end(), 0);
  op.sequences = {
      Tensor::from(starts),
      Tensor::from(std::vector<int32_t>(static_cast<size_t>(sequences), static_cast<int32_t>(length))),
      Tensor::from(places).reshape({sequences, pages})};
  op.lengths = op.sequences.held.on(bench.device());
  op.scale = 1 / std::sqrt(static_cast<float>(kNope + kRope));
  op.weight = values({heads * (kNope + kValue), kRank}, 0.04f);
  const std::string name = fmt::format("latent decode, {}, {} heads, {} sequences of {}", to_string(dtype),
                                       heads, sequences, length);
  report(bench, name, static_cast<double>(op.cache.bytes() + op.weight.bytes()), [&] { kernel.forward(op); });
}

int run(int argc, char** argv) {
  std::vector<std::string> words;
  for (BenchArguments arguments(argc, argv, words); arguments.next();) arguments.refuse();
  if (!words.empty()) fail("unknown argument '{}'; --help says what there is", words[0]);
  GpuBench bench{detect_hardware("cuda")};
  bench.copy_speed = measured_copy(bench.device());
  std::printf("%s; a copy moves %.2f TB/s\n\n| kernel | time | of the bytes | share |\n|---|---|---|---|\n",
              bench.facts.name.c_str(), bench.copy_speed * 1e-12);
  router(bench, 8192, {.experts = 128, .top_k = 8, .normalize = true});
  router(bench, 8192, {.experts = 64, .top_k = 6, .sigmoid = true, .normalize = true});
  router(bench, 8192,
         {.experts = 256, .top_k = 8, .sigmoid = true, .groups = 8, .top_groups = 4, .normalize = true});
  router(bench, 1, {.experts = 128, .top_k = 8, .normalize = true});
  balance(bench, 48, 128);
  for (const int64_t length : {512, 4096, 32767}) latent(bench, kBrain, 1, 16, length);
  latent(bench, kBrain, 16, 16, 4096);
  latent(bench, kBrain, 1, 128, 4096);
  latent(bench, DType::kF32, 1, 16, 4096);
  return 0;
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  return temper::run_benchmark("temper_bench_mixtures", temper::kUsage, temper::run, argc, argv);
}
