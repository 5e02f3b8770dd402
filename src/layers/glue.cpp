#include "layers/glue.h"

#include <algorithm>

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

Var with_loss(Tape& tape, const Var& x, const Var& loss) {
  const Tensor one = Tensor::from<float>(std::vector<float>{1}, {1}).on(loss.value.device());
  return tape.record(x.value, {&x, &loss}, [x = x.slot, loss = loss.slot, one](const Tensor& grad) {
    if (x) x->add(grad);
    if (loss) loss->add(one);
  });
}

Var merge_heads(Tape& tape, const Var& x) {
  const Shape shape = x.shape();
  return tape.record(
      x.value.contiguous().reshape({shape[0], shape[1] * shape[2]}), {&x},
      [slot = x.slot, shape](const Tensor& grad) { slot->add(grad.contiguous().reshape(shape)); });
}

Var split_heads(Tape& tape, const Var& x, int64_t head_dim) {
  return tape.record(x.value.split_dim(1, head_dim), {&x},
                     [slot = x.slot, shape = x.shape()](const Tensor& grad) {
                       slot->add(grad.contiguous().reshape(shape));
                     });
}

namespace {

using Widths = std::vector<std::vector<int64_t>>;

// Calls f(column of a group, result, first column of the result, width) for each part.
template <class F>
void for_each_part(const Widths& widths, int64_t groups, const F& f) {
  int64_t column = 0;
  for (size_t result = 0; result < widths.size(); ++result) {
    int64_t first = 0;
    for (const int64_t width : widths[result]) {
      f(column, result, first, width);
      column += width;
      first += groups * width;
    }
  }
}

}  // namespace

std::vector<Var> ungroup_columns(Tape& tape, const Var& x, int64_t groups, const Widths& widths) {
  const int64_t rows = x.shape()[0];
  const auto grouped = [groups](const Tensor& all) { return all.split_dim(1, all.dim(1) / groups); };
  std::vector<Tensor> results;
  for (const std::vector<int64_t>& parts : widths) {
    int64_t columns = 0;
    for (const int64_t width : parts) columns += groups * width;
    results.push_back(Tensor::empty({rows, columns}, x.dtype(), MemoryTag::kActivations, x.value.device()));
  }
  for_each_part(widths, groups, [&](int64_t column, size_t result, int64_t first, int64_t width) {
    results[result]
        .narrow(1, first, groups * width)
        .split_dim(1, width)
        .copy_from(grouped(x.value).narrow(2, column, width));
  });
  const auto backward = [slot = x.slot, shape = x.shape(), dtype = x.dtype(), device = x.value.device(),
                         groups, widths, grouped](const std::vector<Tensor>& grads) {
    const Tensor dx = Tensor::empty(shape, dtype, MemoryTag::kActivations, device);
    if (std::any_of(grads.begin(), grads.end(), [](const Tensor& grad) { return !grad.defined(); }))
      dx.fill_zero();
    for_each_part(widths, groups, [&](int64_t column, size_t result, int64_t first, int64_t width) {
      if (grads[result].defined())
        grouped(dx)
            .narrow(2, column, width)
            .copy_from(grads[result].narrow(1, first, groups * width).split_dim(1, width));
    });
    slot->add(dx);
  };
  return tape.record(std::move(results), {&x}, backward);
}

Var sigmoid_gated(Tape& tape, const Var& x, const Var& gate) {
  namespace p = primitives;
  const Var open = p::sigmoid(tape, p::cast(tape, gate, DType::kF32));
  return p::cast(tape, p::mul(tape, p::cast(tape, x, DType::kF32), open), x.dtype());
}

}  // namespace temper::layers
