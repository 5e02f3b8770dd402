#pragma once
#include <optional>
#include <string_view>

#include "layers/block.h"
#include "layers/decoder_input.h"
#include "layers/layer_stack.h"
#include "layers/load_balance.h"
#include "layers/norm.h"
#include "layers/vocabulary.h"

namespace temper::layers {

// Where the norms of a layer are, by their names in Hugging Face's files; empty: there is none.
struct LayerNorms {
  std::string before_mixer = "input_layernorm", after_mixer = {};
  std::string before_channel = "post_attention_layernorm", after_channel = {};

  bool operator==(const LayerNorms&) const = default;
};

struct Multipliers {
  double embedding = 1;
  bool rounds_embedding = false;  // to the model's dtype, before it multiplies
  double residual = 1;            // of what is added to the stream
  double logits_divisor = 1;
};

// Names in published files that the weight table needs besides those of its parameters.
struct PublishedNames {
  // How the names of tensors begin that files may hold and no pass reads (WeightTable::keep).
  std::vector<std::string> kept_tensors = {};
  // Of the text of a model that also reads pictures, how published files name it; the tower's tensors are
  // kept. Nothing: the model reads text alone.
  std::optional<TextNames> text = {};
};

// Blocks on a residual stream. Norms before mixers and channels read the stream; those after them come before
// their results are added to it.
struct DecoderConfig {
  int64_t vocab_size = 0, hidden_size = 0;
  int64_t max_positions = 0;
  double rms_norm_eps = 1e-6;
  double initializer_range = 0.02;
  bool tied_head = false;  // the head's weight is the embedding's
  double balance_factor =
      0;  // of the load balancing loss of routers in training, unless a run says otherwise
  std::vector<Block> blocks;
  LayerNorms norms = {};
  double norm_offset = 0;  // added to the weights of norms
  Multipliers multipliers = {};
  RouterOptions routers = {};
  quantizers::QuantizeOptions quantize = {};
  // It gives a value for each token, by a row "head.weight" that is the files' "score.weight", in place of
  // logits: what Hugging Face calls sequence classification with one label.
  bool gives_values = false;
  PublishedNames published = {};

  VocabularySize vocabulary() const {
    return {vocab_size, hidden_size, tied_head, multipliers.logits_divisor};
  }
};

// All that decides what the model computes, one value a key, or a list of them where its layers differ: equal
// objects are of equal models. What only a new model needs (initializer_range) is not in it.
Json describe(const DecoderConfig& config);

// Of the matrix products of one forward pass over documents of these lengths (a multiply-add counts two).
double forward_flops(const DecoderConfig& config, std::span<const int32_t> document_lengths);

// The next tokens of several sequences, those of each one after the other.
struct BatchInput {
  Tensor ids;  // [tokens] int32, on the CPU, or of the vocabulary on the model's device
  PagedBatch batch;
  std::vector<AdapterRows> adapters = {};     // of all tokens in their order; none: the model alone
  std::shared_ptr<RouterTrace> routers = {};  // filled; null: not recorded
  std::vector<Tensor>* stream = nullptr;      // [tokens, hidden] each, as of Decoder::Options
  // Of tokens behind pictures and videos: [sequences] int32 on the CPU, what is added to the places of each
  // sequence's tokens (of text: data::MediaPositions::decoding_next less its tokens so far). Undefined: 0.
  Tensor shifts = {};
  // Of tokens some of which are pictures or videos, in place of shifts: times, heights and widths,
  // [3, tokens] int32 on the CPU; and their rows. Undefined: tokens have one position.
  Tensor media_positions = {};
  PlacedRows placed = {};
};

WeightTable decoder_weight_table(const DecoderConfig& config);

// Where the parameters of such a model are in the stages of a pipeline: a tied head's weight in the first and
// the last one.
Stages decoder_stages(const DecoderConfig& config, const ModelStages& stages);

// The kernels of such a model, chosen once. Modules have the names of their parameters, without ".weight".
// `mesh`: of the ranks of which each has a part.
ops::BoundOps bind_decoder(const DecoderConfig& config, DType dtype, const ops::OpsConfig& ops,
                           const HardwareFacts& facts, const std::string& family,
                           const StateFormat& format = {}, const Mesh& mesh = {});

class PassBuilder;

// A causal language model. Its modules are built here, with their kernels and parameters, once: of several
// stages (ModelStages) those of this rank's layers, the embedding in the first, the final norm and the head
// in the last.
class Decoder {
 public:
  // `frozen`: what the weights of linears are kept in (ParameterStore). `ranks`: that compute the model
  // together, which all call the same functions.
  Decoder(DecoderConfig config, DType dtype, ops::BoundOps ops, Device device = {},
          std::optional<primitives::FrozenFormat> frozen = {}, const ModelRanks& ranks = {});
  Decoder(const Decoder&) = delete;  // modules know where its parameters are
  Decoder& operator=(const Decoder&) = delete;

  const DecoderConfig& config() const { return config_; }
  const ops::BoundOps& ops() const { return ops_; }
  ParameterStore& parameters() { return parameters_; }
  quantizers::Quantizers& quantizers() { return *quantizers_; }
  const quantizers::Quantizers& quantizers() const { return *quantizers_; }
  const ParameterStore& parameters() const { return parameters_; }
  Device device() const { return parameters_.device(); }
  const ModelRanks& ranks() const { return ranks_; }
  // Of the context ranks how many exchange heads (context_division.h); 1 where one rank has all tokens.
  int context_heads() const { return context_parts_.members; }

  // Grows the rotary tables to `positions`, so that forward passes up to there may run on several threads.
  std::vector<RopeTables> prepare_positions(int64_t positions) const { return rope_.up_to(positions); }

  struct Options {
    bool checkpoint_layers = false;  // recompute each layer in backward instead of keeping its activations
    // [tokens, hidden] each: the input of each layer, then what the final norm gives.
    std::vector<Tensor>* hidden_states = nullptr;
    // [tokens, hidden] each: the residual stream before the mixer and before the channel of each layer, then
    // at its end. Not with checkpoint_layers.
    std::vector<Tensor>* stream = nullptr;
    std::vector<AdapterRows> adapters = {};  // of all tokens in their order; none: the model alone
    // The adapters of the update, in the same order on all ranks, where there are several: rows of any of
    // them may come from other ranks (Pass::adapters).
    std::span<const Adapter* const> all_adapters = {};
    std::shared_ptr<RouterTrace> routers = {};  // filled; null: not recorded
  };
  // Hidden states after the final norm, [tokens, hidden], of the tokens that this rank computes.
  Var forward(Tape& tape, const DecoderInput& input, const Options& options) const;
  Var forward(Tape& tape, const DecoderInput& input) const { return forward(tape, input, {}); }
  // One part of the layers that are here, where stages of a pipeline have some each.
  struct Part {
    int index = 0;
    Var input =
        {};  // what the part before gives, [the stream's tokens that are here, hidden]; of the first none
  };
  // Of the last part the hidden states as above, of others the residual stream, which is the next one's
  // input.
  Var forward(Tape& tape, const DecoderInput& input, const Options& options, const Part& part) const;
  // Memory for what passes between parts, uninitialized, [the stream's tokens that are here, hidden].
  Tensor make_part_input(const DecoderInput& input) const;
  PagedStates make_pages(const PageSizes& sizes) const;
  // The same for tokens that continue sequences whose states are `pages`, [tokens, hidden].
  Var forward(Tape& tape, const BatchInput& input, const PagedStates& pages) const;
  // Whether tokens leave behind the same in either form (BoundMixer).
  bool decodes_as_prompts() const { return layers_.decodes_as_prompts(); }
  // Whether passes over sequences that get one token each, and sampling, may be captured.
  bool batches_on_device() const;
  // The op of a training step whose kernel asks the CPU each time; empty where none does.
  std::string_view asks_host() const;

  Var logits(Tape& tape, const Var& hidden, const Adapter* adapter = nullptr) const;  // [tokens, vocab]
  Var logits(Tape& tape, const Var& hidden, const std::vector<AdapterRows>& rows) const {
    return head_->logits(tape, hidden, {rows, hidden.shape()[0]});
  }
  // [tokens, 1] float32, of a model that gives values; `rows` says whose the tokens are, all of them.
  Var values(Tape& tape, const Var& hidden, const AdapterRows& rows = {}) const {
    return (*values_)(tape, hidden, rows);
  }
  // [tokens, this rank's part of the vocabulary], with the gradient (Head::own_logits).
  Var own_logits(Tape& tape, const Var& hidden, const AdapterRows& rows) const {
    return head_->own_logits(
        tape, hidden, rows.adapter == nullptr ? AdaptedRows() : AdaptedRows({rows}, hidden.shape()[0]));
  }
  const ops::VocabularyRanks& vocabulary_ranks() const { return head_->ranks(); }
  // scale · Σ -log p(target) and z_loss; targets [tokens] int32, CrossEntropy::kIgnore where there is none.
  // `rows` says whose the tokens are, all of them.
  ops::CrossEntropy::Vars loss(Tape& tape, const Var& hidden, const Tensor& targets,
                               const ops::CrossEntropy::Factors& factors,
                               const AdapterRows& rows = {}) const {
    return head_->loss(tape, hidden, targets, factors, rows);
  }
  size_t num_routers() const { return router_layers().size(); }
  // For a pass that records what its routers do; null where the model has none.
  std::shared_ptr<RouterTrace> watch_routers() const;
  // Of the channel of a layer; null: it has none, or is on another stage.
  const BoundWeight* choice_bias(size_t layer) const {
    const BoundChannel* const channel = layers_.channel(layer);
    return channel == nullptr ? nullptr : channel->choice_bias();
  }
  // The layers that have routers, in order.
  const std::vector<size_t>& router_layers() const { return layers_.router_layers(); }
  const LoadBalance& balance() const { return balance_; }
  bool trains_head(const AdapterRows& rows) const { return head_ && head_->trains(rows); }
  // Gradients of all passes are there after this (ShardedLayers).
  void settle() const { layers_.settle(); }

 private:
  PassBuilder passes() const;
  ModelStages::Layers all_layers() const { return {0, config_.blocks.size()}; }
  Var embed(Tape& tape, const Tensor& ids, const Pass& pass) const;  // the stream's tokens that are here
  // The final norm of the stream's end, of all `tokens`.
  Var norm_end(Tape& tape, const Stream& stream, const Pass& pass, int64_t tokens) const;
  Binding binding(const std::string& scope = {}, quantizers::Quantizers* quantizers = nullptr);

  DecoderConfig config_;
  ModelRanks ranks_;
  ContextParts context_parts_;
  ParameterStore parameters_;
  ops::BoundOps ops_;
  std::unique_ptr<quantizers::Quantizers> quantizers_;
  mutable RopeTableSet rope_;  // grown to the longest position seen
  RouterSet routers_;
  std::optional<Embedding> embedding_;  // none: it is on another stage, as are norm and head
  float embedding_multiplier_;
  std::optional<Norm> norm_;
  std::optional<Head> head_;         // none, too: it gives values
  std::optional<ValueHead> values_;  // where it does
  LayerStack layers_;
  LoadBalance balance_;
};

}  // namespace temper::layers
