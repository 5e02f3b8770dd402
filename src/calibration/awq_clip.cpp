#include "calibration/awq_clip.h"

#include <algorithm>
#include <map>

#include "base/threads/threads.h"
#include "calibration/output_errors.h"
#include "layers/parameters/sharded_layers.h"
#include "primitives/device_functions.h"

namespace temper::calibration {
namespace {

using quantizers::Quantizer;

// Of the inputs of one weight, Σ x xᵀ of each block of columns: [experts, blocks, block, block] float32, on
// the CPU.
using Grams = std::map<const Quantizer*, std::vector<float>>;

bool has_amax_of_blocks(const Quantizer& each) {
  return !each.planned.of_input && each.planned.keeps_amax() &&
         each.planned.kind.sharing == quantizers::Sharing::kBlock;
}
bool has_amax_of_whole(const Quantizer& each) {
  return !each.planned.of_input && each.planned.keeps_amax() && each.planned.format.has_blocks();
}

int64_t rows_of(const Quantizer& weight) { return weight.planned.values[weight.planned.values.ndim() - 2]; }
int64_t columns_of(const Quantizer& weight) {
  return weight.planned.values[weight.planned.values.ndim() - 1];
}
int64_t matrices_of(const Quantizer& weight) { return std::max<int64_t>(weight.planned.experts, 1); }

void add_tokens(std::vector<float>& grams, const Quantizer& weight, const Tensor& x, int64_t place) {
  const int64_t block = weight.planned.kind.block, blocks = x.dim(1) / block, tokens = x.dim(0);
  const Tensor parts =
      x.to(DType::kF32).contiguous().reshape({tokens, blocks, block}).transpose(0, 1).contiguous();
  const Tensor products =
      Tensor::empty({blocks, block, block}, DType::kF32, MemoryTag::kActivations, x.device());
  primitives::primitive_functions(x.device()).matmul(parts, true, parts, false, products);
  const Tensor here = products.on({});
  float* const to = grams.data() + place * blocks * block * block;
  for (int64_t i = 0; i < here.numel(); ++i) to[i] += here.data<float>()[i];
}

// The weight's matrices rounded with its amax times a ratio.
Tensor rounded(const layers::Decoder& model, const Quantizer& weight, const Tensor& values,
               const Tensor& amax, float ratio) {
  const Tensor smaller = Tensor::empty(amax.shape(), DType::kF32, MemoryTag::kWorkspace, amax.device());
  primitives::primitive_functions(amax.device()).unary(primitives::Scale{ratio}, amax, smaller);
  const quantizers::ColumnScales& columns = weight.columns;
  Tape tape(false);
  return ops::fake_quantize(tape, model.ops().at<ops::FakeQuantize>(weight.planned.name),
                            tape.constant(values), smaller, weight.planned.format, false,
                            {columns.inverse, columns.pre_quant})
      .value;
}

// Of each amax of the whole weight, the errors by each ratio.
std::vector<double> errors_of_blocks(const layers::Decoder& model, const Quantizer& weight,
                                     const std::vector<float>& grams) {
  const Tensor values = layers::gathered_value(model.parameters(), model.ranks(), weight.planned.weight)
                            .contiguous()
                            .reshape(weight.planned.values);
  const Tensor wide = values.on({}).to(DType::kF32);
  const int64_t block = weight.planned.kind.block, columns = columns_of(weight), blocks = columns / block,
                rows = rows_of(weight), all = matrices_of(weight) * rows;
  const int64_t count = weight.whole.defined() ? weight.whole.numel() : weight.amax.numel();
  const bool shared = weight.amax.numel() != all * blocks;  // by all experts
  std::vector<double> errors(static_cast<size_t>(count * kNumClips));
  for (int64_t k = 0; k < kNumClips; ++k) {
    const Tensor other = rounded(model, weight, values, weight.amax, clip_ratio(k)).on({}).to(DType::kF32);
    std::vector<double> own(static_cast<size_t>(all * blocks));
    parallel_ranges(all, 16, [&](int64_t begin, int64_t end) {
      std::vector<float> change(static_cast<size_t>(block));
      for (int64_t row = begin; row < end; ++row)
        for (int64_t b = 0; b < blocks; ++b) {
          const int64_t first = row * columns + b * block;
          for (int64_t c = 0; c < block; ++c)
            change[static_cast<size_t>(c)] = other.data<float>()[first + c] - wide.data<float>()[first + c];
          const float* const gram = grams.data() + (row / rows * blocks + b) * block * block;
          own[static_cast<size_t>(row * blocks + b)] =
              quadratic(change, {gram, static_cast<size_t>(block * block)});
        }
    });
    for (int64_t i = 0; i < all * blocks; ++i) {
      const int64_t amax = shared ? i % weight.amax.numel() : i;
      const int64_t place = weight.elements.empty() ? amax : weight.elements[static_cast<size_t>(amax)];
      errors[static_cast<size_t>(place * kNumClips + k)] += own[static_cast<size_t>(i)];
    }
  }
  return errors;
}

// The whole's amax times the best ratio of each; `errors` [amax of the whole, ratios].
void set_best(Quantizer& weight, std::span<const double> errors) {
  const Tensor amax = weight.amax.on({}).clone();
  for (int64_t i = 0; i < amax.numel(); ++i) {
    const int64_t place = weight.elements.empty() ? i : weight.elements[static_cast<size_t>(i)];
    const auto own = errors.subspan(static_cast<size_t>(place * kNumClips), static_cast<size_t>(kNumClips));
    const auto best = std::ranges::min_element(own) - own.begin();
    // No token reached it: nothing is known to be lost.
    if (own[static_cast<size_t>(kNumClips) - 1] == 0 && own[0] == 0) continue;
    amax.data<float>()[i] *= clip_ratio(best);
  }
  weight.amax.copy_from(amax);
}

void clip_blocks(layers::Decoder& model, const std::vector<data::PackedRow>& rows,
                 const CalibrationOptions& options, collectives::Group& parts, collectives::Group& ranks) {
  quantizers::Quantizers& quantizers = model.quantizers();
  Grams grams;
  for (const Quantizer& each : quantizers.all())
    if (has_amax_of_blocks(each))
      grams[&each].resize(
          static_cast<size_t>(matrices_of(each) * columns_of(each) * each.planned.kind.block));
  if (grams.empty()) return;
  pass_unrounded(model, rows, options.micro_batch_tokens, parts,
                 [&](Quantizer& each, const Tensor& x, int64_t place) {
                   const Quantizer* const weight = quantizers.weight_of_module(each);
                   const auto found = grams.find(weight);
                   if (found != grams.end()) add_tokens(found->second, *weight, x, place);
                 });
  for (Quantizer& each : quantizers.all()) {  // in the plan's order, which is every rank's
    const auto found = grams.find(&each);
    if (found == grams.end()) continue;
    std::vector<double> errors = errors_of_blocks(model, each, found->second);
    ranks.sum("errors of blocks", std::span<double>(errors));
    set_best(each, errors);
  }
}

void clip_wholes(layers::Decoder& model, const std::vector<data::PackedRow>& rows,
                 const CalibrationOptions& options, collectives::Group& parts, collectives::Group& ranks) {
  std::vector<const Quantizer*> wanted;
  for (const Quantizer& each : model.quantizers().all())
    if (has_amax_of_whole(each)) wanted.push_back(&each);
  if (wanted.empty()) return;
  const auto candidate = [&](const RankMatrix& matrix, int64_t k) {
    const Quantizer& weight = *matrix.weight;
    // Of one matrix what the quantizer has for it.
    const auto own = [&](const Tensor& all) {
      if (!all.defined()) return all;
      const int64_t place = all.ndim() == 3 && all.dim(0) > 1 ? matrix.place : 0;
      const Tensor one = all.ndim() == 3 ? all.narrow(0, place, 1) : all;
      return one.reshape({1, one.dim(-1)});
    };
    Quantizer alone{weight.planned};
    alone.columns.pre_quant = own(weight.columns.pre_quant);
    alone.columns.inverse = own(weight.columns.inverse);
    return rounded(model, alone, matrix.values, own(weight.amax), clip_ratio(k)).to(DType::kF32);
  };
  const auto errors =
      output_errors(model, rows, options.micro_batch_tokens, {wanted, kNumClips, candidate}, parts, ranks);
  for (Quantizer& each : model.quantizers().all()) {
    const auto found = errors.find(&each);
    if (found == errors.end()) continue;
    std::vector<double> all = found->second;
    const int64_t count = each.whole.defined() ? each.whole.numel() : each.amax.numel();
    if (count == 1)  // of all experts together
      for (size_t i = static_cast<size_t>(kNumClips); i < all.size(); ++i)
        all[i % static_cast<size_t>(kNumClips)] += all[i];
    set_best(each, all);
  }
}

}  // namespace

float clip_ratio(int64_t which) { return static_cast<float>(0.5 + 0.05 * static_cast<double>(which)); }

double quadratic(std::span<const float> change, std::span<const float> gram) {
  double sum = 0;
  for (size_t i = 0; i < change.size(); ++i) {
    double row = 0;
    for (size_t j = 0; j < change.size(); ++j)
      row += static_cast<double>(gram[i * change.size() + j]) * static_cast<double>(change[j]);
    sum += row * static_cast<double>(change[i]);
  }
  return sum;
}

void clip_weights(layers::Decoder& model, const std::vector<data::PackedRow>& rows,
                  const CalibrationOptions& options, collectives::Group& parts, collectives::Group& ranks) {
  clip_blocks(model, rows, options, parts, ranks);
  clip_wholes(model, rows, options, parts, ranks);
}

}  // namespace temper::calibration
