#include "layers/residual_layer.h"

#include "layers/decoder_modules.h"
#include "layers/glue.h"

namespace temper::layers {
namespace {

// The stream's sum, and what the module behind the norm reads: without a norm the sum, too.
ops::NormedSum read(Tape& tape, const std::optional<Norm>& norm, const Var& x, const Var& branch,
                    const AdaptedRows& rows) {
  if (norm) return (*norm)(tape, x, branch, rows);
  const Var sum = branch.value.defined() ? residual_add(tape, x, branch) : x;
  return {sum, sum};
}

// The norm of a place, where the model has one there.
std::optional<Norm> norm_at(Place place, const Binding& binding, const DecoderConfig& config) {
  const auto norms = modules_of(config.norms);
  const auto& [module, source] = norms[place];
  if (source->empty()) return std::nullopt;
  return Norm(binding, module, config.rms_norm_eps, config.norm_offset);
}

}  // namespace

ResidualLayer::ResidualLayer(const Binding& binding, const Block& block, const DecoderConfig& config)
    : ranks_(binding.ranks),
      residual_multiplier_(static_cast<float>(config.multipliers.residual)),
      input_norm_(norm_at(kBeforeMixer, binding, config)),
      mixer_(block.mixer->bind(binding)),
      mixer_norm_(norm_at(kAfterMixer, binding, config)),
      post_attention_norm_(norm_at(kBeforeChannel, binding, config)),
      channel_(block.channel->bind(binding)),
      channel_norm_(norm_at(kAfterChannel, binding, config)) {}

Var ResidualLayer::branch(Tape& tape, const std::optional<Norm>& norm, Var y, const Pass& pass) const {
  if (norm) y = (*norm)(tape, y, {}, pass.stream_rows).y;
  if (residual_multiplier_ == 1) return y;
  return primitives::scale(tape, y, residual_multiplier_);
}

template <class Module>
Var ResidualLayer::through(Tape& tape, const Var& x, const Pass& pass, const Module& module) const {
  const int64_t tokens = pass.positions.dim(1);
  return ranks_.leave(tape, module(ranks_.enter(tape, x, tokens, pass.divides_tokens)), pass.divides_tokens);
}

Stream ResidualLayer::forward(Tape& tape, size_t index, const Stream& stream, const Pass& pass,
                              std::vector<Tensor>* hidden_states) const {
  const ops::NormedSum in = read(tape, input_norm_, stream.x, stream.branch, pass.stream_rows);
  if (hidden_states != nullptr) hidden_states->push_back(in.sum.value);
  const auto mix = [&](const Var& x) {
    return pass.batch != nullptr ? mixer_->forward_batch(tape, x, pass, pass.pages->layer(index))
                                 : mixer_->forward(tape, x, pass);
  };
  const auto work = [&](const Var& x) { return channel_->forward(tape, x, pass); };
  if (pass.stream != nullptr) pass.stream->push_back(in.sum.value);
  // Nothing but the stream outlives the module that made it.
  const ops::NormedSum middle =
      read(tape, post_attention_norm_, in.sum,
           branch(tape, mixer_norm_, through(tape, in.y, pass, mix), pass), pass.stream_rows);
  if (pass.stream != nullptr) pass.stream->push_back(middle.sum.value);
  return {middle.sum, branch(tape, channel_norm_, through(tape, middle.y, pass, work), pass)};
}

}  // namespace temper::layers
