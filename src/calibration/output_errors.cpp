#include "calibration/output_errors.h"

#include "ops/linear/linear.h"
#include "primitives/device_functions.h"
#include "training/owned_elements.h"

namespace temper::calibration {
namespace {

using quantizers::Quantizer;

Tensor empty_like(const Tensor& like, const Shape& shape) {
  return Tensor::empty(shape, DType::kF32, MemoryTag::kActivations, like.device());
}

Tensor combined(const primitives::Binary& f, const Tensor& a, const Tensor& b) {
  const Tensor y = empty_like(a, a.shape());
  primitives::primitive_functions(a.device()).binary(f, a, b, y);
  return y;
}

// Σ y² of all elements.
double sum_of_squares(const Tensor& y) {
  const Tensor rows = empty_like(y, {y.dim(0), 1});
  primitives::primitive_functions(y.device()).sum_last(combined(primitives::Mul{}, y, y), rows);
  double sum = 0;
  const Tensor here = rows.on({});
  for (const float row : here.values<float>()) sum += row;
  return sum;
}

Tensor matrix_of(const Tensor& value, const Quantizer& weight, int64_t place) {
  const Shape& shape = weight.planned.values;
  const int64_t rows = shape[shape.ndim() - 2], columns = shape[shape.ndim() - 1];
  return value.contiguous()
      .reshape({value.numel() / columns, columns})
      .narrow(0, place * rows, rows)
      .to(DType::kF32)
      .contiguous();
}

class Errors {
 public:
  Errors(const layers::Decoder& model, const Candidates& candidates)
      : model_(model), count_(candidates.count), candidates_(candidates) {
    for (const Quantizer* const each : candidates.weights) {
      const quantizers::PlannedQuantizer& whole = *model_.quantizers().plan().find(each->planned.name);
      found_[each].resize(static_cast<size_t>(std::max<int64_t>(whole.experts, 1) * count_));
    }
  }

  // x [tokens, columns] of one matrix.
  void add(const Quantizer& weight, int64_t place, const Tensor& x) {
    const auto found = found_.find(&weight);
    if (found == found_.end()) return;
    const layers::ParameterStore& parameters = model_.parameters();
    const Placement placement = parameters.layout()[parameters.index_of(weight.planned.weight)].unsharded();
    const Tensor mask = not_owned(placement, weight);
    const bool cut = x.dim(1) != placement.whole()[1];
    // Whole while the layer computes, whatever comes and goes.
    const RankMatrix matrix = rank_matrix(weight, place, parameters.value(weight.planned.weight));
    const auto expert = static_cast<size_t>(first_expert(placement, weight) + place);
    for (int64_t k = 0; k < count_; ++k) {
      Tensor change = combined(primitives::Sub{}, candidates_.rounded(matrix, k), matrix.values);
      if (mask.defined()) change = combined(primitives::Mul{}, change, matrix_of(mask, weight, place));
      const Tensor y = product(weight, x, change);
      // Of columns that ranks divide each has a part of every sum.
      if (cut) model_.ranks().tensor->all_reduce("output errors", y);
      if (!cut || model_.ranks().is_first())
        found->second[expert * static_cast<size_t>(count_) + static_cast<size_t>(k)] += sum_of_squares(y);
    }
  }

  std::map<const Quantizer*, std::vector<double>> of_all(collectives::Group& ranks) {
    for (const Quantizer& each : model_.quantizers().all())  // in the plan's order, which is every rank's
      if (const auto found = found_.find(&each); found != found_.end())
        ranks.sum("output errors", std::span<double>(found->second));
    return std::move(found_);
  }

 private:
  int64_t first_expert(const Placement& placement, const Quantizer& weight) const {
    if (weight.planned.experts == 0 || placement.has_whole()) return 0;
    const int64_t experts = model_.quantizers().plan().find(weight.planned.name)->experts;
    return placement.held().rows.front().whole / (placement.whole()[0] / experts);
  }

  // 1 and 0 where a rank before this one holds the element, too; undefined: none does.
  Tensor not_owned(const Placement& placement, const Quantizer& weight) const {
    int64_t owned = 0;
    for (const Slice& run : owned_runs(placement)) owned += run.count;
    if (owned == weight.planned.values.numel()) return {};
    const Tensor ones = Tensor::empty(placement.own(), DType::kF32, MemoryTag::kData);
    std::fill_n(ones.data<float>(), ones.numel(), 1.f);
    return training::counted_once(placement, ones, 0).on(model_.device());
  }

  // x Wᵀ [tokens, rows] float32, with the module's own kernel where it has one.
  Tensor product(const Quantizer& weight, const Tensor& x, const Tensor& change) const {
    if (weight.planned.experts == 0) {
      Tape tape(false);
      const DType dtype = x.dtype();
      return ops::linear(tape, model_.ops().at<ops::Linear>(weight.planned.module()),
                         tape.constant(x.contiguous()), primitives::Matrix(tape.constant(change.to(dtype))))
          .value.to(DType::kF32)
          .contiguous();
    }
    const Tensor wide = x.to(DType::kF32).contiguous(), y = empty_like(x, {1, x.dim(0), change.dim(0)});
    primitives::primitive_functions(x.device())
        .matmul(wide.reshape({1, x.dim(0), x.dim(1)}), false,
                change.reshape({1, change.dim(0), change.dim(1)}), true, y);
    return y.reshape({x.dim(0), change.dim(0)});
  }

  const layers::Decoder& model_;
  int64_t count_;
  const Candidates& candidates_;
  std::map<const Quantizer*, std::vector<double>> found_;
};

}  // namespace

RankMatrix rank_matrix(const Quantizer& weight, int64_t place, const Tensor& value) {
  return {&weight, place, matrix_of(value, weight, place)};
}

std::map<const Quantizer*, std::vector<double>> output_errors(
    layers::Decoder& model, const std::vector<data::PackedRow>& rows, int64_t micro_batch_tokens,
    const Candidates& candidates, collectives::Group& parts, collectives::Group& ranks) {
  Errors errors(model, candidates);
  pass_unrounded(model, rows, micro_batch_tokens, parts,
                 [&](Quantizer& each, const Tensor& x, int64_t place) {
                   const Quantizer* const weight = model.quantizers().weight_of_module(each);
                   if (weight != nullptr) errors.add(*weight, place, x);
                 });
  return errors.of_all(ranks);
}

}  // namespace temper::calibration
