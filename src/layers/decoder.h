#pragma once
#include <optional>

#include "layers/adapted.h"
#include "layers/decoder_config.h"
#include "layers/kv_cache.h"
#include "layers/parameters.h"
#include "layers/rope.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/rotary/rotary.h"
#include "ops/selection.h"

namespace temper::layers {

// Tokens of one or more documents, one after the other; on the CPU, the decoder brings them where they are
// needed.
struct DecoderInput {
  Tensor ids;         // [tokens] int32
  Tensor positions;   // [tokens] int32, from 0 in each document
  Tensor cu_seqlens;  // [documents + 1] int32
  // Of each document: the one before it that it continues, whose tokens it sees as if they were its own
  // beginning, or -1. Several may continue one, which is then computed once, and which continues none itself.
  // Empty: none does.
  std::vector<int32_t> continued = {};
};
DecoderInput make_input(std::span<const int32_t> ids, std::span<const int32_t> document_lengths,
                        std::vector<int32_t> continued = {});

// The next token of a sequence, all on the model's device, where the step's results change it for the next
// one.
struct NextToken {
  Tensor ids;                        // [1] int32
  Tensor positions;                  // [1] int32: the token's, which is how many tokens the cache holds
  RopeTables rope;                   // of Decoder::prepare_positions, for all positions of the cache
  const Adapter* adapter = nullptr;  // null: the model alone
};

WeightTable decoder_weight_table(const DecoderConfig& config);

// The kernels of such a model, chosen once. Modules have the names of their parameters, without ".weight".
ops::BoundOps bind_decoder(const DecoderConfig& config, DType dtype, const ops::OpsConfig& ops,
                           const HardwareFacts& facts, const std::string& family,
                           const StateFormat& format = {});

// A causal language model. Its kernels are bound here, once.
class Decoder {
 public:
  // `frozen`: what the weights of linears are kept in (ParameterStore).
  Decoder(DecoderConfig config, DType dtype, ops::BoundOps ops, Device device = {},
          std::optional<DType> frozen = {});

  const DecoderConfig& config() const { return config_; }
  const ops::BoundOps& ops() const { return ops_; }
  ParameterStore& parameters() { return parameters_; }
  const ParameterStore& parameters() const { return parameters_; }

  // Grows the rotary tables to `positions`, so that forward passes up to there may run on several threads.
  RopeTables prepare_positions(int64_t positions) const { return rope_tables(positions); }
  Device device() const { return parameters_.device(); }

  struct Options {
    KvCache* cache = nullptr;        // one document, continued after what the cache holds
    bool checkpoint_layers = false;  // recompute each layer in backward instead of keeping its activations
    std::vector<Tensor>* hidden_states = nullptr;  // filled with the input of each layer, then the final norm
    std::vector<AdapterRows> adapters = {};        // of all tokens in their order; none: the model alone
  };
  // Hidden states after the final norm, [tokens, hidden].
  Var forward(Tape& tape, const DecoderInput& input, const Options& options) const;
  Var forward(Tape& tape, const DecoderInput& input) const { return forward(tape, input, {}); }
  // The same for one token that continues the cache, [1, hidden]. What the step depends on stands on the
  // device, so that its work can be captured once and run again; the host advances the cache.
  Var decode(Tape& tape, const NextToken& input, const KvCache& cache) const;
  // Whether the kernels of decode() and sampling leave the host out of it.
  bool decodes_on_device() const;
  Var logits(Tape& tape, const Var& hidden, const Adapter* adapter = nullptr) const;  // [tokens, vocab]
  // scale · Σ -log p(target) and z_loss; targets [tokens] int32, CrossEntropy::kIgnore where there is none.
  // `rows` says whose the tokens are, all of them.
  ops::CrossEntropy::Vars loss(Tape& tape, const Var& hidden, const Tensor& targets,
                               const ops::CrossEntropy::Factors& factors, const AdapterRows& rows = {}) const;
  bool trains_head(const AdapterRows& rows) const;  // whether loss() adds to gradients of parameters

 private:
  struct Context;
  struct Stream;
  Stream layer_forward(Tape& tape, int64_t index, const Stream& stream, const Context& context) const;
  Stream checkpointed_layer(Tape& tape, int64_t index, const Stream& stream, const Context& context) const;
  Var attention(Tape& tape, int64_t index, const Var& x, const Context& context) const;
  Var attend(Tape& tape, int64_t index, const ops::RotatedHeads& heads, const Context& context) const;
  ops::RotatedHeads heads(Tape& tape, int64_t index, const Var& qkv, const Context& context) const;
  Var mlp(Tape& tape, int64_t index, const Var& x, const Context& context) const;
  ops::NormedSum norm(Tape& tape, const std::string& name, const Stream& stream,
                      const Context& context) const;
  AdaptedParameters adapted(std::vector<AdapterRows> rows, int64_t tokens) const;
  const RopeTables& rope_tables(int64_t positions) const;
  void check_ids(std::span<const int32_t> ids) const;

  DecoderConfig config_;
  ParameterStore parameters_;
  ops::BoundOps ops_;
  mutable RopeTables rope_;  // grown to the longest position seen
};

}  // namespace temper::layers
