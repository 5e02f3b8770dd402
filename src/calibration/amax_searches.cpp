#include "calibration/amax_searches.h"

#include <algorithm>
#include <limits>
#include <map>

#include "calibration/calibration_passes.h"
#include "layers/parameters/sharded_layers.h"
#include "quant/amax_search.h"
#include "training/owned_elements.h"

namespace temper::calibration {
namespace {

using quantizers::CalibrationMethod;
using quantizers::PlannedQuantizer;
using quantizers::Quantizer;
using quantizers::Sharing;

constexpr int64_t kHistogramsAtOnce = 64;  // whose counts travel together

// Whether ranks hold parts of what shares one amax.
bool is_cut(const Quantizer& each, const PlannedQuantizer& whole) {
  const int columns = whole.values.ndim() - 1;
  return each.whole.defined() &&
         (whole.kind.sharing == Sharing::kTensor || each.planned.values[columns] != whole.values[columns]);
}

// An amax, or the ends of a range, here.
quant::Bounds ends_of(const Quantizer& each) {
  return {each.low.defined() ? each.low.on({}) : Tensor(), each.amax.on({})};
}
void set_ends(Quantizer& each, const quant::Bounds& found) {
  each.amax.copy_from(found.high);
  if (each.low.defined()) each.low.copy_from(found.low);
}

quant::Histogram empty_histogram(const quant::Bounds& ends, int64_t which) {
  const float high = ends.high.data<float>()[which];
  if (!ends.low.defined()) return quant::Histogram(high);
  return quant::Histogram(quant::Ends{ends.low.data<float>()[which], high});
}
quant::Histogram counts_of(const Tensor& values, const quant::Bounds& ends, int64_t which) {
  return ends.low.defined() ? quant::histogram_of(values, ends, which)
                            : quant::histogram_of(values, ends.high, which);
}

// Each amax with the least of the sums that all ranks' parts have; of a range both ends.
quant::Bounds by_least_error(const Quantizer& each, const Tensor& values, bool cut,
                             collectives::Group& ranks) {
  const quant::Bounds ends = ends_of(each);
  std::vector<double> errors = ends.low.defined()
                                   ? quant::squared_errors(each.planned.format.element, values, ends)
                                   : quant::squared_errors(each.planned.format, values, ends.high);
  if (cut) {
    const auto width = static_cast<size_t>(quant::kNumMultipliers);
    std::vector<double> all(static_cast<size_t>(each.whole.numel()) * width);
    for (size_t i = 0; i < each.elements.size(); ++i)
      for (size_t k = 0; k < width; ++k)
        all[static_cast<size_t>(each.elements[i]) * width + k] += errors[i * width + k];
    ranks.sum("errors of a weight", std::span<double>(all));
    for (size_t i = 0; i < each.elements.size(); ++i)
      for (size_t k = 0; k < width; ++k)
        errors[i * width + k] = all[static_cast<size_t>(each.elements[i]) * width + k];
  }
  return {ends.low.defined() ? quant::least_error_amax(ends.low, errors) : Tensor(),
          quant::least_error_amax(ends.high, errors)};
}

// What has been found of each amax, or of each range.
class Found {
 public:
  explicit Found(const quant::Bounds& like) {
    ends_.high = Tensor::empty(like.high.shape(), DType::kF32, MemoryTag::kData);
    if (like.low.defined()) ends_.low = Tensor::empty(like.low.shape(), DType::kF32, MemoryTag::kData);
  }
  void set(int64_t which, const quant::Ends& ends) {
    ends_.high.data<float>()[which] = ends.high;
    if (ends_.low.defined()) ends_.low.data<float>()[which] = ends.low;
  }
  void set_percentile(int64_t which, const quant::Histogram& histogram, double percentile) {
    set(which, ends_.low.defined() ? quant::percentile_ends(histogram, percentile)
                                   : quant::Ends{0, quant::percentile_amax(histogram, percentile)});
  }
  const quant::Bounds& ends() const { return ends_; }

 private:
  quant::Bounds ends_;
};

quant::Bounds by_percentile(const Quantizer& each, const Tensor& values, double percentile) {
  const quant::Bounds ends = ends_of(each);
  Found found(ends);
  for (int64_t i = 0; i < ends.high.numel(); ++i)
    found.set_percentile(i, counts_of(values, ends, i), percentile);
  return found.ends();
}

// The same of which ranks hold parts: they add up their counts.
quant::Bounds by_percentile_of_all(const Quantizer& each, const Tensor& values, double percentile,
                                   collectives::Group& ranks) {
  const quant::Bounds ends = ends_of(each);
  Found found(ends);
  std::multimap<int64_t, int64_t> own;  // of each amax of the whole those that are here
  for (size_t i = 0; i < each.elements.size(); ++i) own.emplace(each.elements[i], static_cast<int64_t>(i));
  constexpr auto kBins = quant::kHistogramBins;
  for (int64_t first = 0; first < each.whole.numel(); first += kHistogramsAtOnce) {
    const int64_t end = std::min(first + kHistogramsAtOnce, each.whole.numel());
    std::vector<int64_t> counts(static_cast<size_t>((end - first) * kBins));
    for (auto at = own.lower_bound(first); at != own.lower_bound(end); ++at) {
      const quant::Histogram some = counts_of(values, ends, at->second);
      for (int64_t bin = 0; bin < kBins; ++bin)
        counts[static_cast<size_t>((at->first - first) * kBins + bin)] +=
            some.counts()[static_cast<size_t>(bin)];
    }
    ranks.sum("counts of a weight", std::span<int64_t>(counts));
    for (auto at = own.lower_bound(first); at != own.lower_bound(end); ++at) {
      quant::Histogram all = empty_histogram(ends, at->second);
      std::copy_n(counts.begin() + (at->first - first) * kBins, kBins, all.counts().begin());
      found.set_percentile(at->second, all, percentile);
    }
  }
  return found.ends();
}

quant::Ends searched(const PlannedQuantizer& input, const quant::Histogram& histogram,
                     const CalibrationOptions& options) {
  if (!(histogram.width() > 0)) return {};
  if (input.has_zero_points())
    return options.method == CalibrationMethod::kPercentile
               ? quant::percentile_ends(histogram, options.percentile)
               : quant::least_error_ends(histogram, input.format.element);
  switch (options.method) {
    case CalibrationMethod::kPercentile:
      return {0, quant::percentile_amax(histogram, options.percentile)};
    case CalibrationMethod::kEntropy:
      return {0, quant::least_divergence_amax(histogram, input.format.element.bits)};
    default:
      return {0, quant::least_error_amax(histogram, input.format)};
  }
}

// Of each amax the counts of all ranks that see values of it.
void sum_counts(const Quantizer& each, std::vector<quant::Histogram>& own, collectives::Group& ranks) {
  if (ranks.is_alone()) return;
  constexpr auto kBins = static_cast<size_t>(quant::kHistogramBins);
  const bool divided = each.whole.defined();
  std::vector<int64_t> all((divided ? static_cast<size_t>(each.whole.numel()) : own.size()) * kBins);
  const auto place = [&](size_t i) { return (divided ? static_cast<size_t>(each.elements[i]) : i) * kBins; };
  for (size_t i = 0; i < own.size(); ++i)
    std::copy(own[i].counts().begin(), own[i].counts().end(),
              all.begin() + static_cast<std::ptrdiff_t>(place(i)));
  ranks.sum("counts of an input", std::span<int64_t>(all));
  for (size_t i = 0; i < own.size(); ++i)
    std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(place(i)), kBins, own[i].counts().begin());
}

}  // namespace

void search_weights(layers::Decoder& model, const CalibrationOptions& options, collectives::Group& ranks) {
  const bool mse = options.method == CalibrationMethod::kMse;
  if (!mse && options.method != CalibrationMethod::kPercentile) return;
  for (Quantizer& each : model.quantizers().all()) {
    if (each.planned.of_input || !each.planned.keeps_amax()) continue;
    if (!mse && each.planned.format.has_blocks()) continue;
    const layers::ParameterStore& parameters = model.parameters();
    Tensor values = layers::gathered_value(parameters, model.ranks(), each.planned.weight)
                        .contiguous()
                        .reshape(each.planned.values)
                        .on({})
                        .to(DType::kF32);
    const bool cut = is_cut(each, *model.quantizers().plan().find(each.planned.name));
    if (cut) {
      // Zeros have no error, and NaN is in no histogram.
      const Placement& placement = parameters.layout()[parameters.index_of(each.planned.weight)];
      values = training::counted_once(placement.unsharded(), values,
                                      mse ? 0.f : std::numeric_limits<float>::quiet_NaN());
    }
    set_ends(each, mse   ? by_least_error(each, values, cut, ranks)
                   : cut ? by_percentile_of_all(each, values, options.percentile, ranks)
                         : by_percentile(each, values, options.percentile));
  }
}

void search_inputs(layers::Decoder& model, const std::vector<data::PackedRow>& rows,
                   const CalibrationOptions& options, collectives::Group& parts, collectives::Group& ranks) {
  std::map<const Quantizer*, std::vector<quant::Histogram>> histograms;  // one for each amax
  for (const Quantizer& each : model.quantizers().all()) {
    if (!is_calibrated_input(each) || each.planned.format.has_blocks()) continue;
    const quant::Bounds ends = ends_of(each);
    for (int64_t i = 0; i < ends.high.numel(); ++i) histograms[&each].push_back(empty_histogram(ends, i));
  }
  if (histograms.empty()) return;
  pass_unrounded(model, rows, options.micro_batch_tokens, parts,
                 [&](Quantizer& each, const Tensor& x, int64_t place) {
                   const auto found = histograms.find(&each);
                   if (found == histograms.end()) return;
                   found->second[static_cast<size_t>(place)].count(
                       x.contiguous().on({}).to(DType::kF32).values<float>());
                 });
  // In the order of the plan, which is every rank's.
  for (Quantizer& each : model.quantizers().all()) {
    const auto found = histograms.find(&each);
    if (found == histograms.end()) continue;
    sum_counts(each, found->second, ranks);
    Found ends(ends_of(each));
    for (size_t i = 0; i < found->second.size(); ++i)
      ends.set(static_cast<int64_t>(i), searched(each.planned, found->second[i], options));
    set_ends(each, ends.ends());
  }
}

}  // namespace temper::calibration
