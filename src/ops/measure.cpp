#include "ops/measure.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>

#include "base/files.h"
#include "base/json/shared_json.h"
#include "base/text.h"

namespace temper::ops {
namespace {

double error_of(const std::vector<Tensor>& found, const std::vector<Tensor>& expected) {
  double worst = found.size() == expected.size() ? 0 : INFINITY;
  for (size_t i = 0; i < std::min(found.size(), expected.size()); ++i) {
    const auto a = found[i].values<float>(), b = expected[i].values<float>();
    double difference = 0, largest = 1e-30;
    for (size_t k = 0; k < b.size(); ++k) {
      const double gap = std::fabs(double{a[k]} - double{b[k]});
      difference = std::isnan(gap) ? INFINITY : std::max(difference, gap);
      largest = std::max(largest, std::fabs(double{b[k]}));
    }
    worst = std::max(worst, difference / largest);
  }
  return worst;
}

double median_milliseconds(const ProbeRun& run) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  std::vector<double> times;
  // At least three runs, and as many as a fifth of a second has room for.
  while (times.size() < 3 || (Clock::now() - start < std::chrono::milliseconds(200) && times.size() < 200)) {
    const auto begin = Clock::now();
    run();
    times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
  }
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

std::string key_of(const HardwareFacts& facts, DType dtype) {
  return fmt::format("{}, {}", facts.name, to_string(dtype));
}

constexpr std::string_view kPreferences = "measured kernel preferences";

}  // namespace

std::vector<Measurement> measure_kernels(DType dtype, const HardwareFacts& facts, bool timed,
                                         std::string_view only) {
  std::vector<Measurement> all;
  std::vector<std::string> known;
  for (const auto& [name, op] : op_infos().entries()) {
    if (op.probe == nullptr) continue;
    known.push_back(name);
    if (!only.empty() && name != only) continue;
    const std::vector<Tensor> expected = op.probe(std::string(kEager), DType::kF32, facts)();
    for (const KernelInfo& kernel : op.kernels()) {
      if (!kernel.hardware.empty() && kernel.hardware != facts.hardware) continue;
      Measurement result{name, std::string(op.field), kernel.provider};
      // Float32 sums in another order; one or two roundings of bfloat16 on the way.
      result.tolerance = dtype == DType::kF32 ? 2e-5 : 0.02;
      if (kernel.provider == kEager && dtype == DType::kF32 && !timed) {  // what the others are compared with
        all.push_back(std::move(result));
        continue;
      }
      ProbeRun run;
      try {
        run = op.probe(kernel.provider, dtype, facts);
      } catch (const Error& error) {
        result.refusal = error.what();
      }
      try {
        if (run) result.error = error_of(run(), expected);
        if (run && timed) result.milliseconds = median_milliseconds(run);
      } catch (const Error& error) {
        result.failure = error.what();
      }
      all.push_back(std::move(result));
    }
  }
  if (all.empty()) fail("[--op] '{}' is no op whose kernels can be tried; there are {}", only, join(known));
  return all;
}

FieldValues fastest(const std::vector<Measurement>& measurements) {
  std::map<std::string, int> able;
  std::map<std::string, const Measurement*> best;
  for (const Measurement& measurement : measurements) {
    if (!measurement.correct()) continue;
    if (measurement.provider == kEager) continue;  // never a guess
    ++able[measurement.field];
    const Measurement*& leader = best[measurement.field];
    if (leader == nullptr || measurement.milliseconds < leader->milliseconds) leader = &measurement;
  }
  FieldValues preferred;
  for (const auto& [field, count] : able)
    if (count > 1) preferred[field] = best[field]->provider;
  return preferred;
}

std::string preferences_file() { return join_path(cache_folder(), "kernels.json"); }

void remember(const FieldValues& preferred, const HardwareFacts& facts, DType dtype) {
  Json::Object values;
  for (const auto& [field, provider] : preferred) values.emplace_back(field, provider);
  update_shared_json(preferences_file(), kPreferences,
                     [&](Json& devices) { devices.set(key_of(facts, dtype), std::move(values)); });
}

FieldValues remembered(const HardwareFacts& facts, DType dtype) {
  FieldValues preferred;
  const Json devices = read_shared_json(preferences_file(), kPreferences);
  const Json* values = devices.find(key_of(facts, dtype));
  if (values == nullptr || !values->is_object()) return preferred;
  for (const auto& [field, provider] : values->as_object())
    if (provider.is_string()) preferred[field] = provider.as_string();
  return preferred;
}

}  // namespace temper::ops
