#include "backends/hopper/experts.h"

#include "backends/gpu/expert_rows.h"
#include "backends/hopper/expert_gradients.h"
#include "backends/hopper/expert_products.h"
#include "backends/hopper/matrix_boxes.h"

namespace temper::backends::hopper {
namespace {

using ops::MoeExperts;

__nv_bfloat16* bfloat16_of(const Tensor& tensor) {
  return tensor.defined() ? static_cast<__nv_bfloat16*>(tensor.raw()) : nullptr;
}

// Boxes of `rows` rows of 128 bytes of each expert's matrix.
CUtensorMap boxes_of_matrices(const Tensor& matrices, const Shape& shape, int rows) {
  const bool brain = matrices.dtype() == DType::kBF16;
  const auto bytes = static_cast<cuuint64_t>(size_of(matrices.dtype())),
             columns = static_cast<cuuint64_t>(shape[2]), high = static_cast<cuuint64_t>(shape[1]);
  const cuuint64_t sizes[] = {columns, high, static_cast<cuuint64_t>(shape[0])},
                   strides[] = {columns * bytes, high * columns * bytes};
  const cuuint32_t box[] = {static_cast<cuuint32_t>(128 / bytes), static_cast<cuuint32_t>(rows), 1};
  return tensor_map<3>(matrices, brain ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
                       sizes, strides, box, CU_TENSOR_MAP_SWIZZLE_128B);
}
CUtensorMap boxes_of_matrices(const Tensor& matrices, int64_t experts, int rows) {
  return boxes_of_matrices(matrices, {experts, matrices.dim(0) / experts, matrices.dim(1)}, rows);
}

}  // namespace

Experts::Experts(const MoeExperts& op, ExpertPlan plan)
    : op_(op), plan_(std::move(plan)), device_(op.x.device()), rows_(plan_.rows) {}

bool Experts::computes() const { return rows_ > 0 && !only_counts(device_); }
Tensor Experts::rows_of(int64_t columns, MemoryTag tag, DType dtype) const {
  return Tensor::empty({rows_, columns}, dtype, tag, device_);
}

Tensor Experts::items() const { return expert_items(plan_); }

void Experts::multiply_gate_up(const Tensor& items, const Tensor& d, const Tensor& y,
                               const ExpertUpdate& update) const {
  if (!computes()) return;
  const Tensor matrices = with_whole_chunks(op_.gate_up), x = with_whole_chunks(op_.x);
  ExpertProductArguments g = arguments(items, matrices, true, x, op_.width(), op_.hidden());
  g.d = bfloat16_of(d);
  g.y = bfloat16_of(y);
  launch(g, true, Gate::kForward, update);
}

void Experts::differentiate_gate(const Tensor& items, const Tensor& dy, const Tensor& gate_up,
                                 const Tensor& dgate_up, const Tensor& y, const Tensor& dots,
                                 const ExpertUpdate& update) const {
  if (!computes()) return;
  const Tensor matrices = with_whole_chunks(op_.down), gradients = with_whole_chunks(dy);
  ExpertProductArguments g = arguments(items, matrices, false, gradients, op_.width(), op_.hidden());
  g.d = bfloat16_of(dgate_up);
  g.y = bfloat16_of(y);
  g.rows = backends::boxes_of(gate_up, kRowsOfGateBox);
  g.dots = dots.defined() ? dots.data<float>() : nullptr;
  launch(g, false, Gate::kBackward, update);
}

void Experts::multiply(const Tensor& items, const Tensor& given, bool transpose, const Tensor& rows,
                       const Tensor& d, const ExpertUpdate& update) const {
  if (!computes()) return;
  const Tensor matrices = with_whole_chunks(given);
  ExpertProductArguments g = arguments(items, matrices, transpose, {}, d.dim(1), rows.dim(1));
  g.rows = backends::boxes_of(rows, kRowsOfBox);
  g.d = bfloat16_of(d);
  launch(g, transpose, Gate::kNone, update);
}

void Experts::add_gradient(const Tensor& rows, const Tensor& given, bool transposed, const GradTarget& target,
                           Given order) const {
  if (!target.wanted() || only_counts(device_)) return;
  if (with_whole_chunks(target.buffer).raw() != target.buffer.raw()) {  // boxes begin at chunks
    const Tensor whole =
        Tensor::empty(target.buffer.shape(), target.buffer.dtype(), MemoryTag::kWorkspace, device_);
    add_gradient(rows, given, transposed, {whole, false}, order);
    target.accumulate ? add_in_place(target.buffer, whole) : target.buffer.copy_from(whole);
    return;
  }
  const Tensor gathered = with_whole_chunks(given);
  if (rows_ == 0) {
    if (!target.accumulate) target.buffer.fill_zero();
    return;
  }
  const int64_t high = transposed ? gathered.dim(1) : rows.dim(1),
                wide = transposed ? rows.dim(1) : gathered.dim(1);
  ExpertGradientArguments g{};
  g.rows = backends::boxes_of(rows, kStep);
  g.row_data = bfloat16_of(rows);
  g.gathered = bfloat16_of(gathered);
  g.tokens = order == Given::kTokens ? plan_.tokens() : nullptr;
  g.starts = plan_.starts();
  g.d = target.buffer.raw();
  g.boxes = boxes_of_matrices(target.buffer, {op_.experts, high, wide}, kRowsOfBox);
  g.experts = static_cast<int>(op_.experts);
  g.columns = static_cast<int>(rows.dim(1));
  g.gathered_columns = static_cast<int>(gathered.dim(1));
  g.bfloat16 = target.buffer.dtype() == DType::kBF16;
  g.accumulate = target.accumulate;
  launch_expert_gradients(g, transposed, device::multiprocessors(device_), device::stream(device_));
  device::check_launch("expert_gradients");
}

ExpertProductArguments Experts::arguments(const Tensor& items, const Tensor& matrices, bool transpose,
                                          const Tensor& gathered, int64_t columns, int64_t depth) const {
  ExpertProductArguments g{};
  g.matrices = boxes_of_matrices(matrices, op_.experts, transpose ? kRowsOfMatrix : kStep);
  g.gathered = bfloat16_of(gathered);
  g.tokens = plan_.tokens();
  g.choices = plan_.choices();
  g.items = static_cast<const ExpertItems*>(items.raw());
  g.weights = op_.weights.defined() ? op_.weights.data<float>() : nullptr;  // of gates
  g.columns = static_cast<int>(columns);
  g.depth = static_cast<int>(depth);
  return g;
}

void Experts::launch(ExpertProductArguments& g, bool transpose, Gate gate, const ExpertUpdate& update) const {
  if (update.low.defined()) {
    g.update_matrices = boxes_of_matrices(update.matrices, op_.experts, transpose ? kRowsOfMatrix : kStep);
    g.update_rows = backends::boxes_of(update.low, kRowsOfBox);
    g.low = bfloat16_of(update.low);
    g.update_depth = static_cast<int>(update.low.dim(1));
  }
  launch_expert_product(g, transpose, gate, device::multiprocessors(device_), device::stream(device_));
  device::check_launch("expert_product");
}

}  // namespace temper::backends::hopper
