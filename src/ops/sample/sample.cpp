#include "ops/sample/sample.h"

#include <algorithm>
#include <cstring>

#include "ops/checks.h"
#include "ops/op_info.h"

namespace temper::ops {
namespace {

// On the host, whatever the device.
void compose(const Sample& op) {
  const Tensor logits = op.logits.to(DType::kF32).on({}), seen = op.seen.on({}), options = op.options.on({});
  const int64_t vocab = logits.dim(1);
  std::vector<int32_t> ids, found, positions;
  std::vector<float> kept;
  for (const int32_t position : op.positions.on({}).values<int32_t>()) positions.push_back(position + 1);
  for (int64_t s = 0; s < logits.dim(0); ++s) {
    SamplingOptions options_of;
    std::memcpy(&options_of, options.data<uint8_t>() + s * options.dim(1), sizeof(options_of));
    std::vector<int32_t> history;
    const uint8_t* mark = seen.data<uint8_t>() + s * vocab;
    for (int32_t id = 0; id < vocab && options_of.repetition_penalty != 1; ++id)
      if (mark[id] != 0) history.push_back(id);
    const auto row =
        logits.values<float>().subspan(static_cast<size_t>(s * vocab), static_cast<size_t>(vocab));
    const auto position = static_cast<uint64_t>(positions[static_cast<size_t>(s)]);
    const NextToken choice = sample(row, options_of, history, position);
    found.push_back(choice.id);
    kept.push_back(static_cast<float>(choice.kept));
    ids.push_back(std::max(found.back(), 0));
    const uint8_t marked = 1;
    op.seen.narrow(0, s, 1).narrow(1, ids.back(), 1).copy_from_host(&marked, 1);
  }
  op.ids.copy_from_host(ids.data(), op.ids.bytes());
  op.chosen.copy_from_host(found.data(), op.chosen.bytes());
  op.kept.copy_from_host(kept.data(), op.kept.bytes());
  op.positions.copy_from_host(positions.data(), op.positions.bytes());
}

void check(const Sample& op) {
  constexpr auto name = Sample::kName;
  check_ndim(name, "logits", op.logits, 2);
  check_float(name, "logits", op.logits);
  const int64_t sequences = op.logits.dim(0);
  check_shape(name, "options", op.options, {sequences, sizeof(SamplingOptions)});
  check_dtype(name, "options", op.options, DType::kU8);
  check_shape(name, "seen", op.seen, op.logits.shape());
  check_dtype(name, "seen", op.seen, DType::kU8);
  for (const auto& [label, tensor] :
       {std::pair{"positions", &op.positions}, {"ids", &op.ids}, {"chosen", &op.chosen}}) {
    check_shape(name, label, *tensor, {sequences});
    check_dtype(name, label, *tensor, DType::kI32);
  }
  check_shape(name, "kept", op.kept, {sequences});
  check_dtype(name, "kept", op.kept, DType::kF32);
  for (const auto& [label, tensor] :
       {std::pair{"logits", &op.logits}, {"options", &op.options}, {"seen", &op.seen}})
    check_contiguous(name, label, *tensor);
}

void outline_forward(const Sample&) {}

}  // namespace

void choose_tokens(Bound<Sample> bound, const Sample& op) {
  check(op);
  const auto& kernel = *bound;
  kernel.compose != nullptr ? kernel.compose(op) : kernel.forward(op);
}

Probe sample_probe;

void register_sample() {
  register_op<Sample>(compose, sample_probe, {outline_forward}, {.gpu = {{{"cuda", "cuda"}}}});
}

}  // namespace temper::ops
