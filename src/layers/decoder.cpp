#include "layers/decoder.h"

#include <optional>

#include "base/error.h"
#include "layers/context_division.h"
#include "layers/glue.h"
#include "layers/pass_builder.h"
#include "ops/sample/sample.h"
#include "primitives/primitives.h"
#include "tensor/host_inputs.h"

namespace temper::layers {

Decoder::Decoder(DecoderConfig config, DType dtype, ops::BoundOps ops, Device device,
                 std::optional<primitives::FrozenFormat> frozen, const ModelRanks& ranks)
    : config_(std::move(config)),
      ranks_(ranks),
      context_parts_(ranks.context_groups == nullptr
                         ? ContextParts()
                         : ranks.context_groups->parts(context_heads_of(config_, ranks.mesh))),
      parameters_(decoder_weight_table(config_), dtype, device, frozen, ranks.mesh,
                  ranks.stages.place() * ranks.mesh.size() + ranks.rank,
                  decoder_stages(config_, ranks.stages)),
      ops_(std::move(ops)),
      quantizers_(std::make_unique<quantizers::Quantizers>(
          quantizers::plan_quantizers(parameters_.table(), config_.quantize), device, parameters_.table(),
          parameters_.layout())),
      rope_(config_.max_positions, device),
      routers_(config_.routers),
      embedding_(ranks.stages.has_first() ? std::make_optional<Embedding>(binding(), config_.vocabulary())
                                          : std::nullopt),
      embedding_multiplier_(static_cast<float>(config_.multipliers.embedding)),
      layers_(config_, parameters_, ranks_,
              [this](const std::string& scope) { return binding(scope, quantizers_.get()); }),
      balance_(config_, ops_, layers_.router_layers().size(), ranks_.tensor_ranks()) {
  if (ranks.stages.has_last()) {
    norm_.emplace(binding(), "norm", config_.rms_norm_eps, config_.norm_offset);
    if (config_.gives_values)
      values_.emplace(binding());
    else
      head_.emplace(binding(), config_.vocabulary());
  }
  if (config_.multipliers.rounds_embedding)
    visit_float(dtype,
                [&]<class T>() { embedding_multiplier_ = static_cast<float>(T(embedding_multiplier_)); });
}

Binding Decoder::binding(const std::string& scope, quantizers::Quantizers* quantizers) {
  return {parameters_, ops_, rope_, routers_, scope, quantizers, ranks_};
}

PagedStates Decoder::make_pages(const PageSizes& sizes) const {
  std::vector<std::unique_ptr<MixerPages>> layers;
  for (const Block& block : config_.blocks)
    layers.push_back(
        block.on_tensor_ranks(ranks_.tensor_ranks()).mixer->make_pages(sizes, parameters_.dtype(), device()));
  return {std::move(layers), sizes};
}

PassBuilder Decoder::passes() const {
  return {config_, ranks_, context_parts_, rope_, routers_.count(), device()};
}

Var Decoder::embed(Tape& tape, const Tensor& ids, const Pass& pass) const {
  const Var x = ranks_.leave(tape, (*embedding_)(tape, ids, pass.rows), pass.divides_tokens);
  return embedding_multiplier_ == 1 ? x : primitives::scale(tape, x, embedding_multiplier_);
}

Var Decoder::norm_end(Tape& tape, const Stream& stream, const Pass& pass, int64_t tokens) const {
  const ops::NormedSum end = (*norm_)(tape, stream.x, stream.branch, pass.stream_rows);
  if (pass.stream != nullptr) pass.stream->push_back(end.sum.value);
  return ranks_.enter(tape, end.y, tokens, pass.divides_tokens);
}

namespace {

// What passes bring from the host, unless a caller records or repeats that.
class HostScope {
 public:
  explicit HostScope(Device device) {
    if (!HostInputs::recording()) scope_.emplace(inputs_.emplace(device), false);
  }

 private:
  std::optional<HostInputs> inputs_;
  std::optional<HostInputs::Scope> scope_;
};

// Whether ranks that pass each layer together may have rows of different adapters, or none of one. All of
// them must then go the same way back, whichever layers their own adapters change: from the first on.
bool rows_differ(const ModelRanks& ranks, const Pass& pass) {
  if (ranks.lockstep_group() == nullptr || pass.adapters.empty() || pass.adapters.front() == nullptr)
    return false;
  return ranks.expert != nullptr || pass.adapters.size() > 1;
}

Var sum_of(Tape& tape, const Stream& stream) {
  return stream.branch.value.defined() ? residual_add(tape, stream.x, stream.branch) : stream.x;
}

// Among the stream's tokens that are here.
RowPlaces places_of_rows(const DecoderInput& input, const Pass& pass, const ModelRanks& ranks) {
  const int64_t own = ranks.own_tokens(pass.positions.dim(1), pass.divides_tokens);
  return {input.placed.tokens, input.cut, pass.divides_tokens ? ranks.tensor_place() * own : 0, own};
}

// Adds the rows of each layer; nothing where there are none. All arguments have to outlive it.
LayerStack::Behind adding(Tape& tape, const RowPlaces& places, const PlacedRows& placed) {
  if (placed.after_layers.empty()) return {};
  return [&](size_t layer, Stream stream) {
    if (layer >= placed.after_layers.size()) return stream;
    return Stream{places.add(tape, sum_of(tape, stream), placed.after_layers[layer]), {}};
  };
}

}  // namespace

Var Decoder::forward(Tape& tape, const DecoderInput& input, const Options& options) const {
  invariant(ranks_.stages.num_parts() == 1, "a model in parts is computed part by part");
  return forward(tape, input, options, {});
}

Var Decoder::forward(Tape& tape, const DecoderInput& input, const Options& options, const Part& part) const {
  passes().check(input, parameters_.dtype());
  const HostScope scope(device());  // layers ask for the same of the documents
  Pass pass = passes().of(input, options);
  const bool checkpoint = options.checkpoint_layers && tape.recording();
  invariant(options.stream == nullptr || !checkpoint,
            "the stream is not there where layers are computed again");
  if (pass.routers == nullptr && checkpoint && routers_.count() > 0) {
    pass.routers = std::make_shared<RouterTrace>();
    pass.routers->routers.resize(routers_.count());
  }
  std::optional<RowPlaces> places;  // in the first part, which has all of them
  if (input.placed.exist() && part.index == 0) places = places_of_rows(input, pass, ranks_);
  Stream stream{
      part.index > 0 ? part.input : embed(tape, from_host(input.cut.own_of(input.ids), device()), pass), {}};
  if (places) stream.x = places->replace(tape, stream.x, input.placed.rows);
  if (rows_differ(ranks_, pass) && tape.recording() && !stream.x.requires_grad())
    stream.x = tape.variable(stream.x.value);
  LayerStack::Options through{checkpoint, options.hidden_states, {}};
  if (places) through.behind = adding(tape, *places, input.placed);
  stream = layers_.forward(tape, stream, pass, ranks_.stages.layers_of(part.index, config_.blocks.size()),
                           through);
  if (part.index + 1 < ranks_.stages.num_parts()) return sum_of(tape, stream);
  const Var hidden = norm_end(tape, stream, pass, pass.positions.dim(1));
  if (options.hidden_states != nullptr) options.hidden_states->push_back(hidden.value);
  return hidden;
}

Tensor Decoder::make_part_input(const DecoderInput& input) const {
  const int64_t tokens = input.cut.is_whole() ? input.ids.numel() : input.cut.tokens_of(input.cut.place());
  return Tensor::empty({ranks_.own_tokens(tokens, true), config_.hidden_size}, parameters_.dtype(),
                       MemoryTag::kActivations, device());
}

Var Decoder::forward(Tape& tape, const BatchInput& input, const PagedStates& pages) const {
  invariant(!tape.recording() && ranks_.stages.count() == 1, "pages are for inference, on one stage");
  const int64_t tokens = input.ids.numel();
  const PageSizes& sizes = pages.sizes();
  if (input.ids.device().type == DeviceType::kCpu) check_ids(input.ids.values<int32_t>(), config_.vocab_size);
  ops::check_paged_sequences("decoder", input.batch.sequences, tokens, sizes.pages, sizes.page_tokens);
  const HostScope scope(device());
  passes().check(input, parameters_.dtype());
  const Pass pass = passes().of(input, pages);
  Var start = embed(tape, from_host(input.ids, device()), pass);
  if (!input.placed.exist())
    return norm_end(tape, layers_.forward(tape, {start, {}}, pass, all_layers()), pass, tokens);
  const RowPlaces places(input.placed.tokens, {}, 0, tokens);
  start = places.replace(tape, start, input.placed.rows);
  const Stream end =
      layers_.forward(tape, {start, {}}, pass, all_layers(), {.behind = adding(tape, places, input.placed)});
  return norm_end(tape, end, pass, tokens);
}

// Ranks that divide every layer do the same passes, whose collectives are captured with them. Those that keep
// step make passes of their own, and count on the host what they exchange.
bool Decoder::batches_on_device() const {
  return ranks_.forward_lockstep_group() == nullptr && ops_.at<ops::Sample>("head").forward != nullptr &&
         layers_.batches_on_device();
}

std::string_view Decoder::asks_host() const {
  if (head_ && head_->asks_host()) return ops::CrossEntropy::kName;
  if (balance_.asks_host()) return ops::LoadBalancingLoss::kName;
  return layers_.asks_host();
}

std::shared_ptr<RouterTrace> Decoder::watch_routers() const {
  if (num_routers() == 0) return nullptr;
  auto trace = std::make_shared<RouterTrace>();
  trace->wanted = true;
  return trace;
}

Var Decoder::logits(Tape& tape, const Var& hidden, const Adapter* adapter) const {
  const int64_t tokens = hidden.shape()[0];
  return head_->logits(tape, hidden, {{{adapter, tokens}}, tokens});
}

}  // namespace temper::layers
