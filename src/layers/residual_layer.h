#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "layers/block.h"
#include "layers/norm.h"

namespace temper::layers {

struct DecoderConfig;

// The residual stream between modules: the sum of both, which the next norm forms as it reads them.
struct Stream {
  Var x, branch;  // [tokens, hidden]; branch may be Var{}
};

// A block of a decoder with its norms: what it adds to the residual stream.
class ResidualLayer {
 public:
  // `block`: what this rank has of it. `binding` has the layer's scope.
  ResidualLayer(const Binding& binding, const Block& block, const DecoderConfig& config);

  // `index`: of the layer, whose state or pages the pass has. `hidden_states` gets the sum that the layer
  // reads; null: it is not kept.
  Stream forward(Tape& tape, size_t index, const Stream& stream, const Pass& pass,
                 std::vector<Tensor>* hidden_states) const;

  const BoundMixer& mixer() const { return *mixer_; }
  const BoundChannel& channel() const { return *channel_; }

 private:
  // What is added to the stream, of what a mixer or channel returns.
  Var branch(Tape& tape, const std::optional<Norm>& norm, Var y, const Pass& pass) const;
  // What a module makes of all tokens, for the stream's tokens that are here.
  template <class Module>
  Var through(Tape& tape, const Var& x, const Pass& pass, const Module& module) const;

  ModelRanks ranks_;
  float residual_multiplier_;
  std::optional<Norm> input_norm_;
  std::unique_ptr<BoundMixer> mixer_;
  std::optional<Norm> mixer_norm_, post_attention_norm_;
  std::unique_ptr<BoundChannel> channel_;
  std::optional<Norm> channel_norm_;
};

}  // namespace temper::layers
