#include <numeric>

#include "backends/peak.h"
#include "base/clock.h"
#include "base/threads/threads.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/simd/register_peak.cpp"
#include <hwy/foreach_target.h>

#include "backends/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace temper::backends {
namespace {
namespace HWY_NAMESPACE {
using namespace temper::backends::HWY_NAMESPACE;

// Twelve sums, of which none waits for another: enough for two units that take four to six cycles. They begin
// with what is in `sums`, so that no compiler can know that some are equal. Returns the floating-point
// operations.
double multiply_in_registers(int64_t rounds, float* sums) {
  const Lanes a = fill(0.5f), b = fill(1.0f);
  Lanes s0 = fill(sums[0]), s1 = fill(sums[1]), s2 = fill(sums[2]), s3 = fill(sums[3]), s4 = fill(sums[4]),
        s5 = fill(sums[5]), s6 = fill(sums[6]), s7 = fill(sums[7]), s8 = fill(sums[8]), s9 = fill(sums[9]),
        s10 = fill(sums[10]), s11 = fill(sums[11]);
  for (int64_t i = 0; i < rounds; ++i) {
    s0 = hn::MulAdd(s0, a, b), s1 = hn::MulAdd(s1, a, b), s2 = hn::MulAdd(s2, a, b);
    s3 = hn::MulAdd(s3, a, b), s4 = hn::MulAdd(s4, a, b), s5 = hn::MulAdd(s5, a, b);
    s6 = hn::MulAdd(s6, a, b), s7 = hn::MulAdd(s7, a, b), s8 = hn::MulAdd(s8, a, b);
    s9 = hn::MulAdd(s9, a, b), s10 = hn::MulAdd(s10, a, b), s11 = hn::MulAdd(s11, a, b);
  }
  const Lanes all =
      hn::Add(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)), hn::Add(hn::Add(s4, s5), hn::Add(s6, s7)));
  sums[0] = total(hn::Add(all, hn::Add(hn::Add(s8, s9), hn::Add(s10, s11))));
  return 2.0 * 12 * static_cast<double>(width() * rounds);
}

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace temper::backends
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace temper::backends {
namespace {
HWY_EXPORT(multiply_in_registers);

// What float32 multiply-adds of a loop without memory reach; also of bfloat16 where its matrix
// multiplications are computed in float32, else 0.
double register_peak(DType dtype, int threads) {
  if (dtype == DType::kBF16 && detect_cpu().native_bf16) return 0;  // another unit's
  const int before = num_threads();
  set_num_threads(threads);
  std::vector<float> sums(static_cast<size_t>(threads) * 16);
  const double best = best_of_runs(96, [&] {
    std::vector<double> done(static_cast<size_t>(threads));
    const double begun = seconds_now();
    parallel_for(threads, [&](int64_t i) {
      const auto at = static_cast<size_t>(i);
      done[at] = HWY_DYNAMIC_DISPATCH(multiply_in_registers)(1 << 18, &sums[at * 16]);
    });
    return std::accumulate(done.begin(), done.end(), 0.0) / (seconds_now() - begun);
  });
  set_num_threads(before);
  return best;
}

}  // namespace

void register_simd_peak() { registry<PeakProbe>().add("simd", {PeakProbe::Kind::kRegisters, register_peak}); }

}  // namespace temper::backends
#endif  // HWY_ONCE
