#include "training/amax_searches.h"

#include <algorithm>
#include <limits>
#include <map>

#include "layers/sharded_layers.h"
#include "quant/amax_search.h"
#include "training/calibration_passes.h"
#include "training/owned_elements.h"

namespace temper::training {
namespace {

using layers::CalibrationMethod;
using layers::PlannedQuantizer;
using layers::Quantizer;
using layers::Sharing;

constexpr int64_t kHistogramsAtOnce = 64;  // whose counts travel together

// Whether ranks hold parts of what shares one amax.
bool is_cut(const Quantizer& each, const PlannedQuantizer& whole) {
  const int columns = whole.values.ndim() - 1;
  return each.whole.defined() &&
         (whole.kind.sharing == Sharing::kTensor || each.planned.values[columns] != whole.values[columns]);
}

// Each amax with the least of the sums that all ranks' parts have.
Tensor by_least_error(const Quantizer& each, const Tensor& values, bool cut, collectives::Group& ranks) {
  const Tensor amax = each.amax.on({});
  std::vector<double> errors = quant::squared_errors(each.planned.format, values, amax);
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
  return quant::least_error_amax(amax, errors);
}

Tensor by_percentile(const Quantizer& each, const Tensor& values, double percentile) {
  const Tensor amax = each.amax.on({});
  const Tensor found = Tensor::empty(amax.shape(), DType::kF32, MemoryTag::kData);
  for (int64_t i = 0; i < amax.numel(); ++i)
    found.data<float>()[i] = quant::percentile_amax(quant::histogram_of(values, amax, i), percentile);
  return found;
}

// The same of which ranks hold parts: they add up their counts.
Tensor by_percentile_of_all(const Quantizer& each, const Tensor& values, double percentile,
                            collectives::Group& ranks) {
  const Tensor amax = each.amax.on({});
  const Tensor found = Tensor::empty(amax.shape(), DType::kF32, MemoryTag::kData);
  std::multimap<int64_t, int64_t> own;  // of each amax of the whole those that are here
  for (size_t i = 0; i < each.elements.size(); ++i) own.emplace(each.elements[i], static_cast<int64_t>(i));
  constexpr auto kBins = quant::kHistogramBins;
  for (int64_t first = 0; first < each.whole.numel(); first += kHistogramsAtOnce) {
    const int64_t end = std::min(first + kHistogramsAtOnce, each.whole.numel());
    std::vector<int64_t> counts(static_cast<size_t>((end - first) * kBins));
    for (auto at = own.lower_bound(first); at != own.lower_bound(end); ++at) {
      const quant::Histogram some = quant::histogram_of(values, amax, at->second);
      for (int64_t bin = 0; bin < kBins; ++bin)
        counts[static_cast<size_t>((at->first - first) * kBins + bin)] +=
            some.counts()[static_cast<size_t>(bin)];
    }
    ranks.sum("counts of a weight", std::span<int64_t>(counts));
    for (auto at = own.lower_bound(first); at != own.lower_bound(end); ++at) {
      quant::Histogram all(amax.data<float>()[at->second]);
      std::copy_n(counts.begin() + (at->first - first) * kBins, kBins, all.counts().begin());
      found.data<float>()[at->second] = quant::percentile_amax(all, percentile);
    }
  }
  return found;
}

float searched(const PlannedQuantizer& input, const quant::Histogram& histogram,
               const CalibrationOptions& options) {
  switch (options.method) {
    case CalibrationMethod::kPercentile:
      return quant::percentile_amax(histogram, options.percentile);
    case CalibrationMethod::kEntropy:
      return quant::least_divergence_amax(histogram, input.format.element.bits);
    default:
      return quant::least_error_amax(histogram, input.format);
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
      values =
          counted_once(placement.unsharded(), values, mse ? 0.f : std::numeric_limits<float>::quiet_NaN());
    }
    each.amax.copy_from(mse   ? by_least_error(each, values, cut, ranks)
                        : cut ? by_percentile_of_all(each, values, options.percentile, ranks)
                              : by_percentile(each, values, options.percentile));
  }
}

void search_inputs(layers::Decoder& model, const std::vector<data::PackedRow>& rows,
                   const CalibrationOptions& options, collectives::Group& parts, collectives::Group& ranks) {
  std::map<const Quantizer*, std::vector<quant::Histogram>> histograms;  // one for each amax
  for (const Quantizer& each : model.quantizers().all()) {
    if (!is_calibrated_input(each) || each.planned.format.has_blocks()) continue;
    const Tensor largest = each.amax.on({});
    for (const float amax : largest.values<float>()) histograms[&each].emplace_back(amax);
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
    std::vector<float> amax;
    for (const quant::Histogram& own : found->second)
      amax.push_back(own.largest() > 0 ? searched(each.planned, own, options) : 0);
    each.amax.copy_from(Tensor::from<float>(amax, each.amax.shape()));
  }
}

}  // namespace temper::training
