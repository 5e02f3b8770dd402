#include "rollout/passes/decoding_pass.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/error.h"
#include "primitives/primitives.h"
#include "tensor/host_inputs.h"
#include "tensor/reading.h"

namespace temper::rollout {
namespace {

constexpr int64_t kOptionBytes = sizeof(ops::SamplingOptions);

Tensor integers(const Shape& shape) { return Tensor::zeros(shape, DType::kI32); }

}  // namespace

std::span<const int32_t> DecodingPass::Chosen::ids() const {
  return {static_cast<const int32_t*>(reading_->wait()), static_cast<size_t>(rows_)};
}

std::span<const float> DecodingPass::Chosen::floats(int64_t first) const {
  return {static_cast<const float*>(reading_->wait()) + first, static_cast<size_t>(rows_)};
}

std::span<const float> DecodingPass::Chosen::log_probs() const { return floats(rows_); }

std::span<const float> DecodingPass::Chosen::kept() const { return floats(2 * rows_); }

DecodingPass::DecodingPass(const DecodingSetup& setup, const Shape& shape)
    : setup_(setup),
      shape_(shape),
      sample_(setup.model.ops().at<ops::Sample>("head")),
      log_probs_(setup.model.ops().at<ops::TokenLogProbs>("head")),
      options_(Tensor::zeros({shape.rows, kOptionBytes}, DType::kU8)),
      results_(Tensor::zeros({3 * 4 * shape.rows}, DType::kU8, MemoryTag::kData, setup.model.device())),
      work_(setup.model.device(), setup.arena, [this] { compute(); }) {
  input_.ids = setup.ids.narrow(0, 0, shape.rows);
  std::vector<int32_t> starts;
  for (int64_t row = 0; row <= shape.rows; ++row) starts.push_back(static_cast<int32_t>(row));
  input_.batch.sequences = {Tensor::from(starts), integers({shape.rows}),
                            integers({shape.rows, shape.width})};
  input_.batch.slots = integers({shape.rows});
  input_.batch.decoding = shape.rows;
  if (shape.adapter != nullptr) input_.adapters = {{shape.adapter, shape.rows}};
}

void DecodingPass::compute() const {
  const Device device = setup_.model.device();
  const quantizers::Quantizers& quantizers = setup_.model.quantizers();
  take_for_granted("what quantizers do",
                   [&quantizers, mode = quantizers.mode()] { return quantizers.mode() == mode; });
  Tape tape(false);
  const Var hidden = setup_.model.forward(tape, input_, setup_.states);
  const Var logits = setup_.model.logits(tape, hidden, input_.adapters);
  const Tensor chosen = results_.bytes_as(0, {shape_.rows}, DType::kI32);
  // The op moves positions on: its own.
  const Tensor positions = from_host(input_.batch.sequences.held, device).clone();
  ops::choose_tokens(sample_, {logits.value.contiguous(), from_host(options_, device),
                               setup_.seen.narrow(0, 0, shape_.rows), positions, input_.ids, chosen,
                               results_.bytes_as(8 * shape_.rows, {shape_.rows}, DType::kF32)});
  if (shape_.log_prob_temperature == 0) return;
  const Tensor log_probs =
      ops::token_log_probs(tape, log_probs_, logits, input_.ids, shape_.log_prob_temperature).log_probs.value;
  results_.bytes_as(4 * shape_.rows, {shape_.rows}, DType::kF32).copy_from(log_probs);
}

DecodingPass::Chosen DecodingPass::run(std::span<const Row> rows, std::span<const int32_t> ids) {
  invariant(!rows.empty() && std::ssize(rows) <= shape_.rows, "rows for another pass");
  const ops::PagedSequences& sequences = input_.batch.sequences;
  for (int64_t i = 0; i < shape_.rows; ++i) {
    Row row = i < std::ssize(rows) ? rows[static_cast<size_t>(i)] : Row();
    if (row.pages.empty()) row = {0, {&setup_.spare_page, 1}, setup_.spare_slot, {}};
    invariant(std::ssize(row.pages) <= shape_.width, "a sequence with more pages than its pass has");
    sequences.held.data<int32_t>()[i] = row.held;
    input_.batch.slots.data<int32_t>()[i] = row.slot;
    std::copy(row.pages.begin(), row.pages.end(), sequences.pages.data<int32_t>() + i * shape_.width);
    std::memcpy(options_.data<uint8_t>() + i * kOptionBytes, &row.sampling, kOptionBytes);
  }
  if (!ids.empty()) begin(rows, ids);
  work_.run();
  return {start_reading(results_), shape_.rows};
}

// Rows that may be of other sequences than before. From pass to pass the op of sampling marks what it chose.
void DecodingPass::begin(std::span<const Row> rows, std::span<const int32_t> ids) const {
  std::vector<int32_t> all(ids.begin(), ids.end());
  all.resize(static_cast<size_t>(shape_.rows));
  input_.ids.copy_from_host(all.data(), input_.ids.bytes());
  std::vector<uint8_t> marks;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].sampling.repetition_penalty == 1) continue;
    marks.assign(static_cast<size_t>(setup_.seen.dim(1)), 0);
    for (const int32_t id : rows[i].tokens) marks[static_cast<size_t>(id)] = 1;
    setup_.seen.narrow(0, static_cast<int64_t>(i), 1).copy_from_host(marks.data(), marks.size());
  }
}

// Small steps where rows cost most of what a pass does.
int64_t rows_of_pass(int64_t sequences) {
  if (sequences <= 8) return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(sequences)));
  const int64_t step = sequences <= 64 ? 8 : sequences <= 256 ? 32 : 64;
  return (sequences + step - 1) / step * step;
}

}  // namespace temper::rollout
