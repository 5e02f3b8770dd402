#include "layers/glue.h"

#include "base/error.h"
#include "primitives/primitives.h"

namespace temper::layers {

Var residual_add(Tape& tape, const Var& x, const Var& branch) {
  const Tensor sum = x.value.clone();
  add_in_place(sum, branch.value);
  return tape.record(sum, {&x, &branch}, [x = x.slot, branch = branch.slot](const Tensor& grad) {
    if (x) x->add(grad);
    if (branch) branch->add(grad);
  });
}

std::vector<Var> split_rows(Tape& tape, const Var& x, const std::vector<int64_t>& counts) {
  return primitives::split(tape, x, 0, counts);
}

std::vector<Var> split_columns(Tape& tape, const Var& x, const std::vector<int64_t>& widths) {
  return primitives::split(tape, x, 1, widths);
}

Var compact(Tape& tape, const Var& x) {
  return tape.record(x.value.contiguous(), {&x}, [slot = x.slot](const Tensor& grad) { slot->add(grad); });
}

Var join_columns(Tape& tape, const std::vector<Var>& parts) {
  const Tensor& like = parts.front().value;
  int64_t width = 0;
  for (const Var& part : parts) width += part.shape()[1];
  const Tensor all =
      Tensor::empty({like.dim(0), width}, like.dtype(), MemoryTag::kActivations, like.device());
  std::vector<const Var*> inputs;
  std::vector<std::pair<std::shared_ptr<GradSlot>, int64_t>> slots;
  int64_t at = 0;
  for (const Var& part : parts) {
    const int64_t columns = part.shape()[1];
    all.narrow(1, at, columns).copy_from(part.value);
    inputs.push_back(&part);
    slots.emplace_back(part.slot, columns);
    at += columns;
  }
  return tape.record(all, inputs, [slots](const Tensor& grad) {
    int64_t first = 0;
    for (const auto& [slot, columns] : slots) {
      if (slot) slot->add(grad.narrow(1, first, columns).contiguous());
      first += columns;
    }
  });
}

Var add_losses(Tape& tape, const std::vector<Var>& losses) {
  if (losses.size() == 1) return losses.front();
  std::vector<const Var*> inputs;
  std::vector<std::shared_ptr<GradSlot>> slots;
  const Tensor sum = losses.front().value.clone();
  for (const Var& loss : losses) {
    inputs.push_back(&loss);
    slots.push_back(loss.slot);
    if (&loss != &losses.front()) add_in_place(sum, loss.value);
  }
  return tape.record(sum, inputs, [slots](const Tensor& grad) {
    for (const auto& slot : slots)
      if (slot) slot->add(grad);
  });
}

Var merge_heads(Tape& tape, const Var& x) {
  const Shape shape = x.shape();
  return tape.record(
      x.value.contiguous().reshape({shape[0], shape[1] * shape[2]}), {&x},
      [slot = x.slot, shape](const Tensor& grad) { slot->add(grad.contiguous().reshape(shape)); });
}

}  // namespace temper::layers
