#include "layers/decoder.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>

#include "base/error.h"
#include "layers/forced_balance.h"
#include "layers/glue.h"
#include "ops/adamw/adamw.h"
#include "ops/global_norm/global_norm.h"
#include "ops/sample/sample.h"
#include "primitives/primitives.h"
#include "tensor/host_inputs.h"

namespace temper::layers {
namespace {

std::string scope_of(size_t layer) { return fmt::format("layers.{}.", layer); }

enum Place { kBeforeMixer, kAfterMixer, kBeforeChannel, kAfterChannel };

// The norms of a layer by place: their modules, and their names in files.
std::array<std::pair<const char*, const std::string*>, 4> modules_of(const LayerNorms& norms) {
  return {{{"input_norm", &norms.before_mixer},
           {"mixer_norm", &norms.after_mixer},
           {"post_attention_norm", &norms.before_channel},
           {"channel_norm", &norms.after_channel}}};
}

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

// Of the first channel that chooses experts; all of them choose alike. Null: none does.
const ops::Routing* routing_of(const DecoderConfig& config) {
  for (const Block& block : config.blocks)
    if (const ops::Routing* routing = block.channel->routing()) return routing;
  return nullptr;
}

}  // namespace

Json describe(const DecoderConfig& config) {
  std::vector<std::pair<std::string, Json::Array>>
      layers;  // values of each layer by key, null where it has none
  for (size_t i = 0; i < config.blocks.size(); ++i)
    for (const Json::Object& part :
         {config.blocks[i].mixer->describe(), config.blocks[i].channel->describe()})
      for (const auto& [key, value] : part) {
        auto found =
            std::find_if(layers.begin(), layers.end(), [&](const auto& each) { return each.first == key; });
        if (found == layers.end())
          found = layers.insert(layers.end(), {key, Json::Array(config.blocks.size())});
        found->second[i] = value;
      }
  Json json = Json::Object{{"vocab_size", config.vocab_size},
                           {"hidden_size", config.hidden_size},
                           {"num_hidden_layers", static_cast<int64_t>(config.blocks.size())},
                           {"max_position_embeddings", config.max_positions},
                           {"rms_norm_eps", config.rms_norm_eps},
                           {"tie_word_embeddings", config.tied_head}};
  // Of families that differ from the usual there.
  if (config.norms != LayerNorms{}) {
    Json::Object norms;
    for (const auto& [module, source] : modules_of(config.norms)) norms.emplace_back(module, *source);
    json.set("norms", norms);
  }
  for (const auto& [key, value, usual] : {std::tuple{"norm_offset", config.norm_offset, 0.0},
                                          {"embedding_multiplier", config.embedding_multiplier, 1.0},
                                          {"residual_multiplier", config.residual_multiplier, 1.0},
                                          {"logits_divisor", config.logits_divisor, 1.0}})
    if (value != usual) json.set(key, value);
  for (const auto& [key, values] : layers) {
    const bool alike = std::count(values.begin(), values.end(), values.front()) == std::ssize(values);
    json.set(key, alike ? values.front() : Json(values));
  }
  const QuantizerPlan quantizers = plan_quantizers(decoder_weight_table(config), config.quantize);
  Json::Object formats;
  for (const PlannedQuantizer& each : quantizers.quantizers)
    formats.emplace_back(each.name, fmt::format("{}, {}{}", each.kind.format, each.groups(),
                                                each.of_input && each.kind.dynamic ? ", dynamic" : ""));
  if (!formats.empty()) json.set("quantizers", formats);
  if (config.routers.float32) json.set("routers in float32", true);
  if (config.routers.balanced) json.set("experts in turn", true);
  return json;
}

double forward_flops(const DecoderConfig& config, std::span<const int32_t> document_lengths) {
  const int64_t tokens = std::accumulate(document_lengths.begin(), document_lengths.end(), int64_t{0});
  double flops =
      2 * static_cast<double>(tokens) * static_cast<double>(config.hidden_size * config.vocab_size);
  for (const Block& block : config.blocks)
    flops += block.mixer->flops(document_lengths) + block.channel->flops(tokens);
  return flops;
}

WeightTable decoder_weight_table(const DecoderConfig& config) {
  const int64_t hidden = config.hidden_size;
  WeightTable table;
  declare_embedding(table, config.vocabulary());
  for (size_t i = 0; i < config.blocks.size(); ++i) {
    WeightScope layer(table, scope_of(i), "model." + scope_of(i));
    const auto norms = modules_of(config.norms);
    const auto declare = [&](Place place) {
      const auto& [module, source] = norms[place];
      if (!source->empty()) Norm::declare(layer, module, *source, hidden, config.norm_offset);
    };
    declare(kBeforeMixer);
    config.blocks[i].mixer->declare(layer);
    declare(kAfterMixer);
    declare(kBeforeChannel);
    config.blocks[i].channel->declare(layer);
    declare(kAfterChannel);
  }
  WeightScope model(table, "", "model.");
  Norm::declare(model, "norm", "norm", hidden, config.norm_offset);
  declare_head(table, config.vocabulary());
  for (const std::string& beginning : config.kept_tensors) table.keep(beginning);
  return table;
}

ops::BoundOps bind_decoder(const DecoderConfig& config, DType dtype, const ops::OpsConfig& ops,
                           const HardwareFacts& facts, const std::string& family, const StateFormat& format) {
  ops::Binder binder(ops, facts, family);
  OpScope model(binder, "", dtype, config.routers);
  const ops::RmsNorm::Signature norm{dtype, config.hidden_size, static_cast<float>(config.norm_offset)};
  name_vocabulary_ops(model, config.vocabulary());
  model.use<ops::RmsNorm>("norm", norm);
  for (size_t i = 0; i < config.blocks.size(); ++i) {
    OpScope layer(binder, scope_of(i), dtype, config.routers);
    for (const auto& [module, source] : modules_of(config.norms))
      if (!source->empty()) layer.use<ops::RmsNorm>(module, norm);
    config.blocks[i].mixer->name_ops(layer);
    config.blocks[i].channel->name_ops(layer);
  }
  if (const ops::Routing* routing = routing_of(config))
    model.use<ops::LoadBalancingLoss>("routers", {dtype, routing->experts});
  for (const PlannedQuantizer& each :
       plan_quantizers(decoder_weight_table(config), config.quantize).quantizers)
    model.use<ops::FakeQuantize>(each.name, {dtype, each.format});
  model.use<ops::AdamW>("optimizer", {dtype, format.master_weights, format.gradients, format.moments});
  model.use<ops::GlobalNorm>("optimizer", {format.gradients});
  return binder.finish();
}

Decoder::Decoder(DecoderConfig config, DType dtype, ops::BoundOps ops, Device device,
                 std::optional<DType> frozen)
    : config_(std::move(config)),
      parameters_(decoder_weight_table(config_), dtype, device, frozen),
      ops_(std::move(ops)),
      quantizers_(
          std::make_unique<Quantizers>(plan_quantizers(parameters_.table(), config_.quantize), device)),
      rope_(config_.max_positions, device),
      routers_(config_.routers),
      embedding_({parameters_, ops_, rope_, routers_}),
      embedding_multiplier_(static_cast<float>(config_.embedding_multiplier)),
      norm_({parameters_, ops_, rope_, routers_}, "norm", config_.rms_norm_eps, config_.norm_offset),
      head_({parameters_, ops_, rope_, routers_}, config_.vocabulary()) {
  if (config_.rounds_embedding_multiplier)
    visit_float(dtype,
                [&]<class T>() { embedding_multiplier_ = static_cast<float>(T(embedding_multiplier_)); });

  for (size_t i = 0; i < config_.blocks.size(); ++i) {
    const Binding binding{parameters_, ops_, rope_, routers_, scope_of(i), quantizers_.get()};
    const size_t first_router = routers_.count();
    const auto norms = modules_of(config_.norms);
    const auto norm = [&](Place place) -> std::optional<Norm> {
      const auto& [module, source] = norms[place];
      if (source->empty()) return std::nullopt;
      return Norm(binding, module, config_.rms_norm_eps, config_.norm_offset);
    };
    layers_.push_back({norm(kBeforeMixer), config_.blocks[i].mixer->bind(binding), norm(kAfterMixer),
                       norm(kBeforeChannel), config_.blocks[i].channel->bind(binding), norm(kAfterChannel),
                       first_router, routers_.count()});
    router_layers_.resize(routers_.count(), i);
  }
  if (!router_layers_.empty()) balance_ = ops_.at<ops::LoadBalancingLoss>("routers");
}

SequenceState Decoder::make_state(int64_t capacity) const {
  std::vector<std::unique_ptr<MixerState>> states;
  for (const Block& block : config_.blocks)
    states.push_back(block.mixer->make_state(capacity, parameters_.dtype(), device()));
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
  if (norm) y = (*norm)(tape, y, {}, pass.rows).y;
  if (config_.residual_multiplier == 1) return y;
  return primitives::scale(tape, y, static_cast<float>(config_.residual_multiplier));
}

Decoder::Stream Decoder::through_layer(Tape& tape, size_t index, const Stream& stream, const Pass& pass,
                                       std::vector<Tensor>* hidden_states) const {
  const Layer& layer = layers_[index];
  const ops::NormedSum in = read(tape, layer.input_norm, stream.x, stream.branch, pass.rows);
  if (hidden_states != nullptr) hidden_states->push_back(in.sum.value);
  MixerState* const state = pass.state == nullptr ? nullptr : &pass.state->layer(index);
  // Nothing but the stream outlives the module that made it.
  const ops::NormedSum middle =
      read(tape, layer.post_attention_norm, in.sum,
           branch(tape, layer.mixer_norm, layer.mixer->forward(tape, in.y, pass, state), pass), pass.rows);
  return {middle.sum, branch(tape, layer.channel_norm, layer.channel->forward(tape, middle.y, pass), pass)};
}

// Adds at its end, so that the tape keeps one tensor between layers.
Decoder::Stream Decoder::checkpointed_layer(Tape& tape, size_t index, const Stream& stream,
                                            const Pass& pass) const {
  // Backward runs this again after `pass` is gone: it keeps its own copy of the handles.
  const auto body = [this, index, pass](Tape& inner, const Var& start) {
    const Stream end = through_layer(inner, index, {start, {}}, pass, nullptr);
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
  Pass pass{from_host(input.positions, device()), rope, {options.adapters, input.ids.numel()}, options.state};
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
  const Var x = embedding_(tape, ids, pass.rows);
  return embedding_multiplier_ == 1 ? x : primitives::scale(tape, x, embedding_multiplier_);
}

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
  pass.routers = options.routers;
  if (pass.routers == nullptr && checkpoint && routers_.count() > 0)
    pass.routers = std::make_shared<RouterTrace>();
  if (pass.routers != nullptr) pass.routers->routers.resize(routers_.count());
  Stream stream{embed(tape, from_host(input.ids, device()), pass), {}};
  for (size_t i = 0; i < layers_.size(); ++i) {
    if (checkpoint && options.hidden_states != nullptr) options.hidden_states->push_back(stream.x.value);
    stream = checkpoint ? checkpointed_layer(tape, i, stream, pass)
                        : through_layer(tape, i, stream, pass, options.hidden_states);
  }
  if (options.state != nullptr) options.state->advance(input.ids.numel());
  const Var hidden = norm_(tape, stream.x, stream.branch, pass.rows).y;
  if (options.hidden_states != nullptr) options.hidden_states->push_back(hidden.value);
  return hidden;
}

Var Decoder::decode(Tape& tape, const NextToken& input, const SequenceState& state) const {
  invariant(!tape.recording(), "a state is for inference");
  const Pass pass{input.positions, input.rope, {{{input.adapter, 1}}, 1}, &state, true};
  Stream stream{embed(tape, input.ids, pass), {}};
  for (size_t i = 0; i < layers_.size(); ++i) stream = through_layer(tape, i, stream, pass, nullptr);
  return norm_(tape, stream.x, stream.branch, pass.rows).y;
}

bool Decoder::decodes_on_device() const {
  return ops_.at<ops::Sample>("head").forward != nullptr &&
         std::all_of(layers_.begin(), layers_.end(), [](const Layer& layer) {
           return layer.mixer->decodes_on_device() && layer.channel->decodes_on_device();
         });
}

std::string_view Decoder::asks_host() const {
  if (head_.asks_host()) return ops::CrossEntropy::kName;
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
  op.factor = balance.factor;
  op.inverse_tokens = balance.inverse_tokens;
  return ops::load_balancing_loss(tape, balance_, sums, std::move(op));
}

Var Decoder::logits(Tape& tape, const Var& hidden, const Adapter* adapter) const {
  const int64_t tokens = hidden.shape()[0];
  return head_.logits(tape, hidden, {{{adapter, tokens}}, tokens});
}

}  // namespace temper::layers
