#include "layers/decoder.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "layers/decoder_modules.h"
#include "layers/forced_balance.h"
#include "layers/glue.h"
#include "ops/sample/sample.h"
#include "primitives/primitives.h"
#include "tensor/host_inputs.h"

namespace temper::layers {
namespace {

int64_t furthest(const Tensor& positions) {
  const auto values = positions.values<int32_t>();
  return *std::max_element(values.begin(), values.end());
}

// The rows that each document sees: those of the one it continues, then its own.
primitives::ChosenRows seen_rows(const DecoderInput& input, std::vector<int32_t>& starts_k) {
  const auto starts = input.cu_seqlens.values<int32_t>();
  std::vector<int32_t> seen;
  const auto see = [&](size_t document) {
    for (int32_t row = starts[document]; row < starts[document + 1]; ++row) seen.push_back(row);
  };
  starts_k = {0};
  for (size_t d = 0; d < input.continued.size(); ++d) {
    if (input.continued[d] >= 0) see(static_cast<size_t>(input.continued[d]));
    see(d);
    starts_k.push_back(static_cast<int32_t>(seen.size()));
  }
  return {Tensor::from(seen), input.ids.numel(), true};
}

}  // namespace

Decoder::Decoder(DecoderConfig config, DType dtype, ops::BoundOps ops, Device device,
                 std::optional<primitives::FrozenFormat> frozen, const ModelRanks& ranks)
    : config_(std::move(config)),
      ranks_(ranks),
      parameters_(decoder_weight_table(config_), dtype, device, frozen, ranks.mesh, ranks.rank),
      ops_(std::move(ops)),
      quantizers_(std::make_unique<quantizers::Quantizers>(
          quantizers::plan_quantizers(parameters_.table(), config_.quantize), device, parameters_.table(),
          parameters_.layout())),
      rope_(config_.max_positions, device),
      routers_(config_.routers),
      embedding_(binding(), config_.vocabulary()),
      embedding_multiplier_(static_cast<float>(config_.embedding_multiplier)),
      norm_(binding(), "norm", config_.rms_norm_eps, config_.norm_offset),
      head_(config_.gives_values ? std::nullopt : std::make_optional<Head>(binding(), config_.vocabulary())),
      values_(config_.gives_values ? std::make_optional<ValueHead>(binding()) : std::nullopt) {
  if (config_.rounds_embedding_multiplier)
    visit_float(dtype,
                [&]<class T>() { embedding_multiplier_ = static_cast<float>(T(embedding_multiplier_)); });

  for (size_t i = 0; i < config_.blocks.size(); ++i) {
    Binding binding = this->binding(scope_of(i));
    binding.quantizers = quantizers_.get();
    const Block block = config_.blocks[i].on_tensor_ranks(ranks_.tensor_ranks());
    const size_t first_router = routers_.count();
    const auto norms = modules_of(config_.norms);
    const auto norm = [&](Place place) -> std::optional<Norm> {
      const auto& [module, source] = norms[place];
      if (source->empty()) return std::nullopt;
      return Norm(binding, module, config_.rms_norm_eps, config_.norm_offset);
    };
    layers_.push_back({norm(kBeforeMixer), block.mixer->bind(binding), norm(kAfterMixer),
                       norm(kBeforeChannel), block.channel->bind(binding), norm(kAfterChannel), first_router,
                       routers_.count()});
    router_layers_.resize(routers_.count(), i);
  }
  if (ranks_.mesh.shard_level > 1 && (ranks_.shard != nullptr || ranks_.expert_shard != nullptr))
    sharded_ = std::make_unique<ShardedLayers>(parameters_, ranks_, layers_.size());
  if (!router_layers_.empty()) balance_ = ops_.at<ops::LoadBalancingLoss>("routers");
}

Binding Decoder::binding(const std::string& scope) {
  return {parameters_, ops_, rope_, routers_, scope, nullptr, ranks_};
}

SequenceState Decoder::make_state(int64_t capacity) const {
  std::vector<std::unique_ptr<MixerState>> states;
  for (const Block& block : config_.blocks)
    states.push_back(block.on_tensor_ranks(ranks_.tensor_ranks())
                         .mixer->make_state(capacity, parameters_.dtype(), device()));
  return {std::move(states), capacity};
}

// Before they travel to a device, where no kernel checks them.
void Decoder::check_ids(std::span<const int32_t> ids) const {
  for (const int32_t id : ids)
    if (id < 0 || id >= config_.vocab_size)
      fail("token id {} is outside the vocabulary [0, {})", id, config_.vocab_size);
}

namespace {

// The stream's sum, and what the module behind the norm reads: without a norm the sum, too.
ops::NormedSum read(Tape& tape, const std::optional<Norm>& norm, const Var& x, const Var& branch,
                    const AdaptedRows& rows) {
  if (norm) return (*norm)(tape, x, branch, rows);
  const Var sum = branch.value.defined() ? residual_add(tape, x, branch) : x;
  return {sum, sum};
}

}  // namespace

Var Decoder::branch(Tape& tape, const std::optional<Norm>& norm, Var y, const Pass& pass) const {
  if (norm) y = (*norm)(tape, y, {}, pass.stream_rows).y;
  if (config_.residual_multiplier == 1) return y;
  return primitives::scale(tape, y, static_cast<float>(config_.residual_multiplier));
}

template <class Module>
Var Decoder::through(Tape& tape, const Var& x, const Pass& pass, const Module& module) const {
  const int64_t tokens = pass.positions.dim(1);
  return ranks_.leave(tape, module(ranks_.enter(tape, x, tokens, pass.divides_tokens)), pass.divides_tokens);
}

Decoder::Stream Decoder::through_layer(Tape& tape, size_t index, const Stream& stream, const Pass& pass,
                                       std::vector<Tensor>* hidden_states) const {
  const Layer& layer = layers_[index];
  const ops::NormedSum in = read(tape, layer.input_norm, stream.x, stream.branch, pass.stream_rows);
  if (hidden_states != nullptr) hidden_states->push_back(in.sum.value);
  MixerState* const state = pass.state == nullptr ? nullptr : &pass.state->layer(index);
  const auto mix = [&](const Var& x) {
    return pass.batch != nullptr ? layer.mixer->forward_batch(tape, x, pass, pass.pages->layer(index))
                                 : layer.mixer->forward(tape, x, pass, state);
  };
  const auto work = [&](const Var& x) { return layer.channel->forward(tape, x, pass); };
  if (pass.stream != nullptr) pass.stream->push_back(in.sum.value);
  // Nothing but the stream outlives the module that made it.
  const ops::NormedSum middle =
      read(tape, layer.post_attention_norm, in.sum,
           branch(tape, layer.mixer_norm, through(tape, in.y, pass, mix), pass), pass.stream_rows);
  if (pass.stream != nullptr) pass.stream->push_back(middle.sum.value);
  return {middle.sum, branch(tape, layer.channel_norm, through(tape, middle.y, pass, work), pass)};
}

Decoder::Stream Decoder::through_sharded(Tape& tape, size_t index, const Stream& stream, const Pass& pass,
                                         std::vector<Tensor>* hidden_states, bool again) const {
  if (sharded_ == nullptr) return through_layer(tape, index, stream, pass, hidden_states);
  const Var x = sharded_->begin(tape, index, stream.x, again);
  Stream end = through_layer(tape, index, {x, stream.branch}, pass, hidden_states);
  if (!again) end.branch = sharded_->end(tape, index, end.branch);
  return end;
}

// Adds at its end, so that the tape keeps one tensor between layers.
Decoder::Stream Decoder::checkpointed_layer(Tape& tape, size_t index, const Stream& stream,
                                            const Pass& pass) const {
  // Backward runs this again after `pass` is gone: it keeps its own copy of the handles.
  const auto body = [this, index, pass](Tape& inner, const Var& start) {
    const Stream end = through_sharded(inner, index, {start, {}}, pass, nullptr, inner.recording());
    std::vector<Var> results{residual_add(inner, end.x, end.branch)};
    for (RouterTrace::Part* part : router_parts(index, pass)) results.push_back(part->sums);
    return results;
  };
  const std::vector<Var> results = tape.checkpoint_many(stream.x, body);
  // Those of the body belong to its own tape.
  auto result = results.begin();
  for (RouterTrace::Part* part : router_parts(index, pass)) part->sums = *++result;
  return {results.front(), {}};
}

std::vector<RouterTrace::Part*> Decoder::router_parts(size_t index, const Pass& pass) const {
  std::vector<RouterTrace::Part*> parts;
  if (pass.routers == nullptr) return parts;
  for (size_t i = layers_[index].first_router; i < layers_[index].end_router; ++i)
    for (RouterTrace::Part& part : pass.routers->routers[i].parts) parts.push_back(&part);
  return parts;
}

Pass Decoder::pass_of(const DecoderInput& input, const Options& options) const {
  const std::vector<RopeTables>& rope = rope_.up_to(furthest(input.positions) + 1);
  const int64_t covered = rope.empty() ? config_.max_positions : rope.front().cos.dim(0);
  // With the tables themselves: a longer row may replace those of the decoder.
  take_for_granted("ids " + name_of(input.ids),
                   [this, ids = input.ids, positions = input.positions, rope, covered] {
                     check_ids(ids.values<int32_t>());
                     return furthest(positions) < covered;
                   });
  Pass pass{from_host(input.positions, device()), rope, {options.adapters, input.ids.numel()}};
  pass.adapters.assign(options.all_adapters.begin(), options.all_adapters.end());
  if (pass.adapters.empty() && !options.adapters.empty()) pass.adapters = {options.adapters.front().adapter};
  pass.state = options.state;
  pass.divides_tokens = ranks_.divides_tokens(options.state == nullptr);
  pass.stream_rows = pass.divides_tokens
                         ? pass.rows.part(ranks_.tensor_place() * ranks_.own_tokens(input.ids.numel(), true),
                                          ranks_.own_tokens(input.ids.numel(), true))
                         : pass.rows;
  pass.cu_seqlens_q = pass.cu_seqlens_k = input.cu_seqlens;
  if (input.counted.defined() && routers_.count() > 0) pass.counted = from_host(input.counted, device());
  if (config_.routers.balanced && routers_.count() > 0)
    pass.experts = experts_in_turn(*routing_of(config_), input.ids.numel(), device());
  invariant(options.state == nullptr || (input.cu_seqlens.numel() == 2 && input.continued.empty()),
            "a state continues one document");
  if (options.state != nullptr) {
    const auto end = static_cast<int32_t>(options.state->length() + input.ids.numel());
    pass.cu_seqlens_k = Tensor::from(std::vector<int32_t>{0, end});
  }
  if (!input.continued.empty()) {
    std::vector<int32_t> starts_k;
    pass.seen = seen_rows(input, starts_k);
    take_for_granted("seen " + name_of(input.cu_seqlens), [input, found = starts_k] {
      std::vector<int32_t> now;
      seen_rows(input, now);
      return now == found;
    });
    pass.cu_seqlens_k = Tensor::from(starts_k);
    pass.continued = Tensor::from(input.continued);
  }
  return pass;
}

Var Decoder::embed(Tape& tape, const Tensor& ids, const Pass& pass) const {
  const Var x = ranks_.leave(tape, embedding_(tape, ids, pass.rows), pass.divides_tokens);
  return embedding_multiplier_ == 1 ? x : primitives::scale(tape, x, embedding_multiplier_);
}

Var Decoder::norm_end(Tape& tape, const Stream& stream, const Pass& pass) const {
  const ops::NormedSum end = norm_(tape, stream.x, stream.branch, pass.stream_rows);
  if (pass.stream != nullptr) pass.stream->push_back(end.sum.value);
  return end.y;
}

namespace {

// Whether ranks that pass each layer together may have rows of different adapters, or none of one. All of
// them must then go the same way back, whichever layers their own adapters change: from the first on.
bool rows_differ(const ModelRanks& ranks, const Pass& pass) {
  if (ranks.in_step() == nullptr || pass.adapters.empty() || pass.adapters.front() == nullptr) return false;
  return ranks.expert != nullptr || pass.adapters.size() > 1;
}

}  // namespace

Var Decoder::forward(Tape& tape, const DecoderInput& input, const Options& options) const {
  if (input.ids.numel() == 0) fail("a forward pass needs at least one token");
  invariant(options.state == nullptr || !tape.recording(), "a state is for inference");
  check_ids(input.ids.values<int32_t>());
  check_boundaries(input, options.state == nullptr ? 0 : options.state->length());
  // Layers ask for the same of the documents.
  std::optional<HostInputs> inputs;
  std::optional<HostInputs::Scope> scope;
  if (!HostInputs::recording()) scope.emplace(inputs.emplace(device()), false);
  Pass pass = pass_of(input, options);
  const bool checkpoint = options.checkpoint_layers && tape.recording();
  invariant(options.stream == nullptr || !checkpoint,
            "the stream is not there where layers are computed again");
  pass.stream = options.stream;
  pass.routers = options.routers;
  if (pass.routers == nullptr && checkpoint && routers_.count() > 0)
    pass.routers = std::make_shared<RouterTrace>();
  if (pass.routers != nullptr) pass.routers->routers.resize(routers_.count());
  Stream stream{embed(tape, from_host(input.ids, device()), pass), {}};
  if (rows_differ(ranks_, pass) && tape.recording() && !stream.x.requires_grad())
    stream.x = tape.variable(stream.x.value);
  for (size_t i = 0; i < layers_.size(); ++i) {
    if (checkpoint && options.hidden_states != nullptr) options.hidden_states->push_back(stream.x.value);
    stream = checkpoint ? checkpointed_layer(tape, i, stream, pass)
                        : through_sharded(tape, i, stream, pass, options.hidden_states, false);
  }
  if (options.state != nullptr) options.state->advance(input.ids.numel());
  const Var hidden = ranks_.enter(tape, norm_end(tape, stream, pass), input.ids.numel(), pass.divides_tokens);
  if (options.hidden_states != nullptr) options.hidden_states->push_back(hidden.value);
  return hidden;
}

Var Decoder::decode(Tape& tape, const NextToken& input, const SequenceState& state) const {
  invariant(!tape.recording(), "a state is for inference");
  const AdaptedRows rows{{{input.adapter, 1}}, 1};
  Pass pass{input.positions.reshape({1, 1}), input.rope, rows, rows};
  pass.adapters = {input.adapter};
  pass.state = &state;
  pass.decodes = true;
  Stream stream{embed(tape, input.ids, pass), {}};
  for (size_t i = 0; i < layers_.size(); ++i) stream = through_sharded(tape, i, stream, pass, nullptr, false);
  return ranks_.enter(tape, norm_end(tape, stream, pass), 1, false);
}

bool Decoder::decodes_on_device() const {
  return !ranks_.meet() && ops_.at<ops::Sample>("head").forward != nullptr &&
         std::all_of(layers_.begin(), layers_.end(), [](const Layer& layer) {
           return layer.mixer->decodes_on_device() && layer.channel->decodes_on_device();
         });
}

// Ranks that divide every layer do the same passes, whose collectives are captured with them. Those that keep
// step make passes of their own, and count on the host what they exchange.
bool Decoder::batches_on_device() const {
  return ranks_.in_step_forward() == nullptr && ops_.at<ops::Sample>("head").forward != nullptr &&
         std::all_of(layers_.begin(), layers_.end(), [](const Layer& layer) {
           return layer.mixer->batches_on_device() && layer.channel->decodes_on_device();
         });
}

std::string_view Decoder::asks_host() const {
  if (head_ && head_->asks_host()) return ops::CrossEntropy::kName;
  if (!router_layers_.empty() && !balance_->repeats) return ops::LoadBalancingLoss::kName;
  for (const Layer& layer : layers_)
    for (const std::string_view op : {layer.mixer->asks_host(), layer.channel->asks_host()})
      if (!op.empty()) return op;
  return {};
}

std::shared_ptr<RouterTrace> Decoder::watch_routers() const {
  if (router_layers_.empty()) return nullptr;
  auto trace = std::make_shared<RouterTrace>();
  trace->wanted = true;
  return trace;
}

Var Decoder::balance_loss(Tape& tape, const RouterTrace& trace, size_t part, const Balance& balance) const {
  ops::LoadBalancingLoss op;
  std::vector<Var> sums;
  for (const RouterTrace::Router& router : trace.routers) {
    op.counts.push_back(router.parts[part].counts);
    sums.push_back(router.parts[part].sums);
  }
  if (!balance.counts.empty()) op.counts = balance.counts;
  op.top_k = routing_of(config_)->top_k;
  // All tensor ranks see all tokens: of the gradient each gives its share, whose sum is whole.
  const auto ranks = static_cast<float>(ranks_.tensor_ranks());
  op.factor = balance.factor / ranks;
  op.inverse_tokens = balance.inverse_tokens;
  const Var share = ops::load_balancing_loss(tape, balance_, sums, std::move(op));
  if (ranks == 1) return share;
  Tape beside(false);
  return tape.record(primitives::scale(beside, share, ranks).value, {&share},
                     [slot = share.slot](const Tensor& grad) { slot->add(grad); });
}

Var Decoder::logits(Tape& tape, const Var& hidden, const Adapter* adapter) const {
  const int64_t tokens = hidden.shape()[0];
  return head_->logits(tape, hidden, {{{adapter, tokens}}, tokens});
}

}  // namespace temper::layers
