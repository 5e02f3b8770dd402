#include "calibration/awq.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "calibration/column_scales.h"
#include "calibration/output_errors.h"
#include "layers/parameters/sharded_layers.h"
#include "primitives/amax.h"
#include "primitives/fake_quantized.h"
#include "training/owned_elements.h"

namespace temper::calibration {
namespace {

using quantizers::Quantizer;

int64_t block_of(const quantizers::PlannedQuantizer& planned) {
  return planned.format.has_blocks() ? planned.format.block : planned.kind.block;
}

// Each magnitude divided by the largest of its block.
Tensor shares_of_blocks(const Tensor& values, int64_t block) {
  const Tensor shares = Tensor::empty(values.shape(), DType::kF32, MemoryTag::kData);
  for (int64_t first = 0; first < values.numel(); first += block) {
    const float* from = values.data<float>() + first;
    float* to = shares.data<float>() + first;
    float largest = 0;
    for (int64_t i = 0; i < block; ++i) largest = std::max(largest, std::fabs(from[i]));
    for (int64_t i = 0; i < block; ++i)
      to[i] = std::fabs(from[i]) / (largest + std::numeric_limits<float>::min());
  }
  return shares;
}

// Means over rows of each column of the whole weight, and of each expert.
std::vector<float> means_of_columns(const layers::Decoder& model, const Quantizer& weight,
                                    collectives::Group& ranks) {
  const layers::ParameterStore& parameters = model.parameters();
  const Placement placement = parameters.layout()[parameters.index_of(weight.planned.weight)].unsharded();
  const Tensor values = layers::gathered_value(parameters, model.ranks(), weight.planned.weight)
                            .contiguous()
                            .on({})
                            .to(DType::kF32),
               ones = Tensor::empty(values.shape(), DType::kF32, MemoryTag::kData);
  std::fill_n(ones.data<float>(), ones.numel(), 1.f);
  const Tensor shares =
                   training::counted_once(placement, shares_of_blocks(values, block_of(weight.planned)), 0),
               counted = training::counted_once(placement, ones, 0);
  const auto all = static_cast<size_t>(weight.columns.whole.numel());
  const int64_t columns = values.dim(-1), rows_each = weight.planned.values[weight.planned.values.ndim() - 2];
  std::vector<double> sums(all), counts(all);
  for (int64_t i = 0; i < values.numel(); ++i) {
    const int64_t own = i / columns / rows_each * columns + i % columns;
    const auto place = static_cast<size_t>(weight.columns.places[static_cast<size_t>(own)]);
    sums[place] += shares.data<float>()[i];
    counts[place] += counted.data<float>()[i];
  }
  ranks.sum("shares of columns", std::span<double>(sums));
  ranks.sum("rows of columns", std::span<double>(counts));
  std::vector<float> means;
  for (size_t i = 0; i < all; ++i) means.push_back(static_cast<float>(sums[i] / counts[i]));
  return means;
}

// The pre-quant scales of one weight, [experts, columns], by each alpha.
struct Proposals {
  std::vector<std::vector<float>> scales;
  // Of formats with a scale of the whole: the largest magnitudes of the whole by each alpha, [experts] or
  // one.
  std::vector<std::vector<float>> amax;
};

class Search {
 public:
  Search(layers::Decoder& model, const ColumnsOfInputs& inputs, collectives::Group& ranks)
      : model_(model), ranks_(ranks) {
    for (const Quantizer& each : model.quantizers().all()) {  // in the plan's order, which is every rank's
      if (!each.columns.exist()) continue;
      wanted_.push_back(&each);
      Proposals& own = candidates_[&each];
      propose(own, each, inputs.at(&each));
      if (each.planned.format.has_blocks() && each.planned.keeps_amax()) find_amax(own, each);
    }
  }

  const std::vector<const Quantizer*>& wanted() const { return wanted_; }
  const std::vector<float>& scales(const Quantizer& weight, int64_t alpha) const {
    return candidates_.at(&weight).scales[static_cast<size_t>(alpha)];
  }

  // `values` as they come back with the factors of this alpha.
  Tensor rounded(const RankMatrix& matrix, int64_t alpha) const {
    const Quantizer& weight = *matrix.weight;
    const quantizers::PlannedQuantizer& planned = weight.planned;
    const ops::ColumnFactors factors = factors_of(weight, matrix.place, alpha);
    Tensor amax;
    if (planned.format.has_blocks()) {
      if (planned.keeps_amax()) {
        const std::vector<float>& own = candidates_.at(&weight).amax[static_cast<size_t>(alpha)];
        const auto place = own.size() == 1 ? 0 : static_cast<size_t>(matrix.place);
        amax = Tensor::from<float>(std::vector<float>{own[place]}, {1, 1}).on(model_.device());
      }
    } else {
      amax = primitives::amax_of(primitives::scaled_columns(matrix.values, factors.by),
                                 {matrix.values.dim(0), matrix.values.dim(1) / planned.kind.block});
    }
    Tape tape(false);
    return ops::fake_quantize(tape, model_.ops().at<ops::FakeQuantize>(planned.name),
                              tape.constant(matrix.values), amax, planned.format, false, factors)
        .value;
  }

 private:
  void propose(Proposals& own, const Quantizer& weight, const InputColumns& inputs) const {
    const std::vector<float> weights = means_of_columns(model_, weight, ranks_);
    const auto columns = static_cast<size_t>(weight.columns.whole.dim(-1));
    std::vector<float> means;
    for (size_t i = 0; i < inputs.sums.size(); ++i)
      means.push_back(inputs.tokens[i] == 0 ? 0 : static_cast<float>(inputs.sums[i] / inputs.tokens[i]));
    for (int64_t k = 0; k < kNumAlphas; ++k) {
      std::vector<float>& scales = own.scales.emplace_back();
      for (size_t first = 0; first < means.size(); first += columns) {
        const std::span<const float> of_inputs(means.data() + first, columns),
            of_weights(weights.data() + first, columns);
        for (const float factor : awq_factors(of_inputs, of_weights, awq_alpha(k)))
          scales.push_back(1 / factor);
      }
      round_to(scales, model_.parameters().dtype());
    }
  }

  ops::ColumnFactors factors_of(const Quantizer& weight, int64_t place, int64_t alpha) const {
    const std::vector<float>& scales = candidates_.at(&weight).scales[static_cast<size_t>(alpha)];
    const int64_t columns = weight.planned.values[weight.planned.values.ndim() - 1];
    std::vector<float> back, by;
    for (int64_t c = 0; c < columns; ++c) {
      const int64_t own = weight.columns.places[static_cast<size_t>(place * columns + c)];
      back.push_back(scales[static_cast<size_t>(own)]);
      by.push_back(1 / back.back());
    }
    return {Tensor::from<float>(by, {1, columns}).on(model_.device()),
            Tensor::from<float>(back, {1, columns}).on(model_.device())};
  }

  void find_amax(Proposals& own, const Quantizer& weight) const {
    const Tensor value = layers::gathered_value(model_.parameters(), model_.ranks(), weight.planned.weight);
    for (int64_t k = 0; k < kNumAlphas; ++k) {
      std::vector<float>& found = own.amax.emplace_back(static_cast<size_t>(weight.planned.count));
      for (int64_t place = 0; place < std::max<int64_t>(weight.planned.experts, 1); ++place) {
        const RankMatrix matrix = rank_matrix(weight, place, value);
        const Tensor amax = primitives::amax_of(
            primitives::scaled_columns(matrix.values, factors_of(weight, place, k).by), {1, 1});
        float& of = found[found.size() == 1 ? 0 : static_cast<size_t>(place)];
        of = std::max(of, *amax.on({}).data<float>());
      }
      share(found, weight);
    }
  }

  // Ranks that divide matrices have parts of them.
  void share(std::vector<float>& own, const Quantizer& weight) const {
    if (ranks_.is_alone()) return;
    std::vector<float> all(static_cast<size_t>(model_.quantizers().plan().find(weight.planned.name)->count));
    const auto first =
        own.size() == all.size()
            ? 0
            : static_cast<size_t>(weight.columns.places.front() / weight.columns.whole.dim(-1));
    std::copy(own.begin(), own.end(), all.begin() + static_cast<std::ptrdiff_t>(first));
    share_largest(all, ranks_);
    std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(first), own.size(), own.begin());
  }

  layers::Decoder& model_;
  collectives::Group& ranks_;
  std::vector<const Quantizer*> wanted_;
  std::map<const Quantizer*, Proposals> candidates_;
};

}  // namespace

float awq_alpha(int64_t which) { return static_cast<float>(0.1 * static_cast<double>(which)); }

std::vector<float> awq_factors(std::span<const float> inputs, std::span<const float> weights, float alpha) {
  constexpr float kTiny = std::numeric_limits<float>::min();
  const auto of_weights = static_cast<float>(1 - static_cast<double>(alpha));
  std::vector<float> factors;
  for (size_t c = 0; c < inputs.size(); ++c)
    factors.push_back(
        std::clamp(std::pow(inputs[c], alpha) / (std::pow(weights[c], of_weights) + kTiny), 1e-4f, 1e4f));
  const auto [least, largest] = std::ranges::minmax(factors);
  const float middle = std::sqrt(largest * least);
  for (float& factor : factors) factor /= middle;
  return factors;
}

std::vector<ChosenAlpha> search_alphas(layers::Decoder& model, const std::vector<data::PackedRow>& rows,
                                       const CalibrationOptions& options, const ColumnsOfInputs& inputs,
                                       collectives::Group& parts, collectives::Group& ranks) {
  const Search search(model, inputs, ranks);
  const Candidates candidates{search.wanted(), kNumAlphas,
                              [&](const RankMatrix& matrix, int64_t k) { return search.rounded(matrix, k); }};
  const auto errors = output_errors(model, rows, options.micro_batch_tokens, candidates, parts, ranks);
  std::vector<ChosenAlpha> chosen;
  for (const Quantizer* const weight : search.wanted()) {
    const std::vector<double>& own = errors.at(weight);
    const int64_t columns = weight->columns.whole.dim(-1), experts = weight->columns.whole.numel() / columns;
    std::vector<float> scales(static_cast<size_t>(experts * columns), 1.f);
    for (int64_t e = 0; e < experts; ++e) {
      if (inputs.at(weight).tokens[static_cast<size_t>(e * columns)] == 0) continue;
      const auto first = own.begin() + e * kNumAlphas;
      const int64_t best = std::min_element(first, first + kNumAlphas) - first;
      std::copy_n(search.scales(*weight, best).begin() + e * columns, columns, scales.begin() + e * columns);
      chosen.push_back(
          {weight->planned.module(), weight->columns.whole.ndim() == 3 ? e : -1, awq_alpha(best)});
    }
    set_scales(*weight, scales);
  }
  return chosen;
}

}  // namespace temper::calibration
