#include "rollout/passes/token_loop.h"

#include "base/error.h"

namespace temper::rollout {
namespace {

Tensor zeros(Shape shape, DType dtype, Device device) {
  return Tensor::zeros(shape, dtype, MemoryTag::kData, device);
}

}  // namespace

TokenLoop::TokenLoop(const layers::Decoder& model, layers::SequenceState& state,
                     const layers::Adapter* adapter)
    : model_(model),
      state_(state),
      adapter_(adapter),
      capacity_(state.capacity()),
      rope_(model.prepare_positions(state.capacity())),
      sample_(model.ops().at<ops::Sample>("head")),
      ids_(zeros({1}, DType::kI32, model.device())),
      chosen_(zeros({1}, DType::kI32, model.device())),
      positions_(zeros({1}, DType::kI32, model.device())),
      kept_(zeros({1}, DType::kF32, model.device())),
      options_(zeros({1, sizeof(ops::SamplingOptions)}, DType::kU8, model.device())),
      seen_(zeros({1, model.config().vocab_size}, DType::kU8, model.device())),
      work_(model.device(), model.decodes_on_device(), [this] {
        Tape tape(false);
        const Var hidden = model_.decode(tape, {ids_, positions_, rope_, adapter_}, state_);
        choose(model_.logits(tape, hidden, adapter_).value);
      }) {}

void TokenLoop::start(std::span<const int32_t> history, const ops::SamplingOptions& options) {
  const auto last = static_cast<int32_t>(history.size()) - 1;
  positions_.copy_from_host(&last, sizeof(last));
  options_.copy_from_host(&options, sizeof(options));
  if (options.repetition_penalty == 1) return;
  std::vector<uint8_t> marks(static_cast<size_t>(seen_.numel()));
  for (const int32_t id : history)
    if (id >= 0 && id < seen_.numel()) marks[static_cast<size_t>(id)] = 1;
  seen_.copy_from_host(marks.data(), seen_.bytes());
}

void TokenLoop::choose(const Tensor& logits) {
  ops::choose_tokens(sample_, {logits, options_, seen_, positions_, ids_, chosen_, kept_});
  // Ranks that compute one text go on with the first one's token, however their logits are rounded.
  for (collectives::Group* const ranks : {model_.ranks().lockstep_group(), model_.ranks().tensor}) {
    if (ranks == nullptr) continue;
    ranks->broadcast("the next token", ids_, 0);
    ranks->broadcast("the chosen token", chosen_, 0);
  }
}

void TokenLoop::step() {
  invariant(state_.length() < capacity_, "a step beyond the state's capacity");
  work_.run();
  state_.advance(1);
}

}  // namespace temper::rollout
