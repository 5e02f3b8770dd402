#include "quant/histogram.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <numeric>

#include "base/threads/threads.h"
#include "quant/zero_points.h"

namespace temper::quant {
namespace {

constexpr int64_t kFirstBin = 128;  // of searches: below, too much would be cut off
constexpr size_t kValuesAtOnce = 1 << 16;

// The divergence of the first `end` bins, with all counts beyond them in the last one, from their values on
// `levels` levels. Infinite where a bin has values and its level has none.
double divergence(std::span<const int64_t> bins, int64_t end, int64_t beyond, int64_t levels) {
  std::vector<double> sums(static_cast<size_t>(levels)), used(static_cast<size_t>(levels));
  const auto level_of = [&](int64_t bin) { return static_cast<size_t>(bin * levels / end); };
  for (int64_t bin = 0; bin < end; ++bin) {
    const int64_t count = bins[static_cast<size_t>(bin)];
    if (count == 0) continue;
    sums[level_of(bin)] += static_cast<double>(count);
    used[level_of(bin)] += 1;
  }
  double all_levels = 0, all = static_cast<double>(beyond);
  for (int64_t bin = 0; bin < end; ++bin) {
    const int64_t count = bins[static_cast<size_t>(bin)];
    if (count == 0) continue;
    all_levels += sums[level_of(bin)] / used[level_of(bin)];
    all += static_cast<double>(count);
  }
  double sum = 0;
  for (int64_t bin = 0; bin < end; ++bin) {
    const int64_t count = bins[static_cast<size_t>(bin)];
    const double own = static_cast<double>(count + (bin + 1 == end ? beyond : 0)) / all;
    if (own == 0) continue;
    if (count == 0) return std::numeric_limits<double>::infinity();
    const double level = sums[level_of(bin)] / used[level_of(bin)] / all_levels;
    sum += own * std::log(own / level);
  }
  return sum;
}

}  // namespace

void Histogram::count(std::span<const float> values) {
  if (!(width() > 0)) return;
  const auto add = [&](std::span<const float> some, std::vector<int64_t>& counts) {
    for (const float value : some) {
      if (value != value) continue;
      const float from_start =
          of_values_ ? std::clamp(value - least_, 0.f, width()) : std::min(std::fabs(value), largest_);
      const auto bin = static_cast<int64_t>(from_start * static_cast<float>(kHistogramBins) / width());
      ++counts[static_cast<size_t>(std::min(bin, kHistogramBins - 1))];
    }
  };
  if (values.size() <= kValuesAtOnce) return add(values, counts_);
  std::mutex mutex;
  parallel_ranges(static_cast<int64_t>(values.size()), kValuesAtOnce, [&](int64_t begin, int64_t end) {
    std::vector<int64_t> own(counts_.size());
    add(values.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)), own);
    const std::lock_guard lock(mutex);
    for (size_t i = 0; i < own.size(); ++i) counts_[i] += own[i];
  });
}

float Histogram::edge(int64_t bin) const {
  const float of_bin = width() / static_cast<float>(kHistogramBins);
  if (bin < kHistogramBins / 2) return least_ + of_bin * static_cast<float>(bin);
  return largest_ - of_bin * static_cast<float>(kHistogramBins - bin);
}

float Histogram::center(int64_t bin) const { return (edge(bin + 1) + edge(bin)) / 2; }

float percentile_amax(const Histogram& histogram, double percentile) {
  const auto counts = histogram.counts();
  const auto total = static_cast<double>(std::accumulate(counts.begin(), counts.end(), int64_t{0}));
  double share = 0;
  int64_t bin = 0;
  for (; bin < kHistogramBins; ++bin) {
    share += static_cast<double>(counts[static_cast<size_t>(bin)]) / total;
    if (share >= percentile / 100) break;
  }
  return histogram.edge(std::max<int64_t>(bin, 1));
}

namespace {

// Σ (rounded(x) - x)² over what was counted, each value as the center of its bin.
template <class F>
double squared_error(const Histogram& histogram, const F& rounded) {
  double error = 0;
  for (int64_t i = 0; i < kHistogramBins; ++i) {
    const int64_t count = histogram.counts()[static_cast<size_t>(i)];
    if (count == 0) continue;
    const float x = histogram.center(i);
    const double off = static_cast<double>(rounded(x)) - x;
    error += off * off * static_cast<double>(count);
  }
  return error;
}

}  // namespace

float least_error_amax(const Histogram& histogram, const Format& format) {
  double least = std::numeric_limits<double>::infinity();
  float best = histogram.largest();
  for (int64_t bin = kFirstBin; bin < kHistogramBins; ++bin) {
    const float amax = histogram.center(bin);
    const Factors factors = factors_of(format, amax);
    const double error = squared_error(histogram, [&](float x) {
      return dequantized(format, quantized(format, x, factors.by), factors.back);
    });
    if (error < least) {
      least = error;
      best = amax;
    }
  }
  return best;
}

Ends percentile_ends(const Histogram& histogram, double percentile) {
  const auto counts = histogram.counts();
  const double most = static_cast<double>(std::accumulate(counts.begin(), counts.end(), int64_t{0})) *
                      ((100 - percentile) / 200);
  // How many bins have no more values than may be cut off.
  const auto cut = [&](auto begin, auto end) {
    double beyond = 0;
    int64_t bins = 0;
    for (auto at = begin; at != end && (beyond += static_cast<double>(*at)) <= most; ++at) ++bins;
    return bins;
  };
  const int64_t below = cut(counts.begin(), counts.end()), above = cut(counts.rbegin(), counts.rend());
  if (below + above >= kHistogramBins) return {histogram.least(), histogram.largest()};
  return {std::min(histogram.edge(below), 0.f), std::max(histogram.edge(kHistogramBins - above), 0.f)};
}

Ends least_error_ends(const Histogram& histogram, const Element& element) {
  double least = std::numeric_limits<double>::infinity();
  Ends best{histogram.least(), histogram.largest()};
  for (int64_t bin = kFirstBin; bin < kHistogramBins; ++bin) {
    const float part = (static_cast<float>(bin) + 0.5f) / static_cast<float>(kHistogramBins);
    const Ends ends{histogram.least() * part, histogram.largest() * part};
    const ZeroPoint at = zero_point_of(element, ends.low, ends.high);
    const double error =
        squared_error(histogram, [&](float x) { return value_of(at, integer_of(element, at, x)); });
    if (error < least) {
      least = error;
      best = ends;
    }
  }
  return best;
}

float least_divergence_amax(const Histogram& histogram, int bits) {
  std::vector<int64_t> bins(histogram.counts().begin(), histogram.counts().end());
  bins[0] = bins[1];
  int64_t beyond = std::accumulate(bins.begin() + kFirstBin, bins.end(), int64_t{0});
  double least = std::numeric_limits<double>::infinity();
  int64_t best = kHistogramBins;
  for (int64_t end = kFirstBin; end <= kHistogramBins; ++end) {
    const double found = divergence(bins, end, beyond, int64_t{1} << (bits - 1));
    if (found <= least) {
      least = found;
      best = end;
    }
    if (end < kHistogramBins) beyond -= bins[static_cast<size_t>(end)];
  }
  return histogram.edge(best);
}

}  // namespace temper::quant
