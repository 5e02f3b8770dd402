#include "layers/decoder.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "layers/glue.h"
#include "ops/attention/attention.h"
#include "ops/attention/decode_attention.h"
#include "ops/sample/sample.h"
#include "ops/swiglu/swiglu.h"
#include "primitives/primitives.h"
#include "tensor/host_inputs.h"

namespace temper::layers {

// What every layer of one forward pass reads.
struct Decoder::Context {
  Tensor positions;  // on the model's device
  RopeTables rope;
  KvCache* cache;
  Tensor cu_seqlens_q, cu_seqlens_k;
  std::vector<Tensor>* hidden_states;  // null: nobody looks
  AdaptedParameters parameters;
  const KvCache* decoded_cache = nullptr;           // of decode()
  std::optional<primitives::ChosenRows> seen = {};  // keys and values that make cu_seqlens_k; none: all once
};

// The residual stream between modules: the sum of both, which the next norm forms on its way.
struct Decoder::Stream {
  Var x, branch;  // [tokens, hidden]; branch may be Var{}
};

namespace {

constexpr const char* kHead = "head.weight";  // which may be the embedding's

int64_t furthest(const Tensor& positions) {
  const auto values = positions.values<int32_t>();
  return *std::max_element(values.begin(), values.end());
}

}  // namespace

DecoderInput make_input(std::span<const int32_t> ids, std::span<const int32_t> document_lengths,
                        std::vector<int32_t> continued) {
  std::vector<int32_t> positions, starts{0};
  for (size_t d = 0; d < document_lengths.size(); ++d) {
    const int32_t before = continued.empty() ? -1 : continued[d];
    invariant(before < static_cast<int32_t>(d) && (before < 0 || continued[static_cast<size_t>(before)] < 0),
              "a document continues one before it, which continues none");
    const int32_t first = before < 0 ? 0 : document_lengths[static_cast<size_t>(before)];
    for (int32_t i = 0; i < document_lengths[d]; ++i) positions.push_back(first + i);
    starts.push_back(starts.back() + document_lengths[d]);
  }
  if (positions.size() != ids.size())
    fail("documents of {} tokens in all, but {} token ids", positions.size(), ids.size());
  return {Tensor::from(ids, {static_cast<int64_t>(ids.size())}), Tensor::from(positions),
          Tensor::from(starts), std::move(continued)};
}

namespace {

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
                 std::optional<DType> frozen)
    : config_(std::move(config)),
      parameters_(decoder_weight_table(config_), dtype, device, frozen),
      ops_(std::move(ops)) {}

const RopeTables& Decoder::rope_tables(int64_t positions) const {
  if (positions > config_.max_positions)
    fail("{} positions are asked for; the model's max_position_embeddings is {}", positions,
         config_.max_positions);
  if (!rope_.cos.defined() || rope_.cos.dim(0) < positions) {
    const auto grown =
        static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(positions, 256))));
    rope_ = make_rope_tables(config_.rope, config_.head_dim, std::min(grown, config_.max_positions));
    rope_ = {rope_.cos.on(device(), MemoryTag::kWeights), rope_.sin.on(device(), MemoryTag::kWeights)};
  }
  return rope_;
}

// Before they travel to a device, where no kernel checks them.
void Decoder::check_ids(std::span<const int32_t> ids) const {
  for (const int32_t id : ids)
    if (id < 0 || id >= config_.vocab_size)
      fail("token id {} is outside the vocabulary [0, {})", id, config_.vocab_size);
}

AdaptedParameters Decoder::adapted(std::vector<AdapterRows> rows, int64_t tokens) const {
  int64_t count = 0;
  for (const AdapterRows& each : rows) count += each.rows;
  invariant(rows.empty() || count == tokens, "every token of a pass is an adapter's or the model's");
  return {parameters_, ops_, std::move(rows)};
}

ops::NormedSum Decoder::norm(Tape& tape, const std::string& name, const Stream& stream,
                             const Context& context) const {
  const auto eps = static_cast<float>(config_.rms_norm_eps);
  const std::vector<Var> sum_and_y = context.parameters.by_rows(
      tape, {stream.x, stream.branch}, {name + ".weight"}, [&](const AdaptedParameters::Piece& piece) {
        const ops::NormedSum normed =
            ops::add_rms_norm(tape, ops_.at(name), piece.inputs[0], piece.inputs[1], piece.weights[0], eps);
        return std::vector{normed.sum, normed.y};
      });
  return {sum_and_y[0], sum_and_y[1]};
}

ops::RotatedHeads Decoder::heads(Tape& tape, int64_t index, const Var& qkv, const Context& context) const {
  const std::string name = fmt::format("layers.{}.attention", index);
  const auto norm_name = [&](const char* norm) { return config_.qk_norm ? name + norm : ""; };
  const std::vector<Var> rotated = context.parameters.by_rows(
      tape, {qkv}, {norm_name(".q_norm.weight"), norm_name(".k_norm.weight")},
      [&](const AdaptedParameters::Piece& piece) {
        const Var& own = piece.inputs[0];
        const ops::RotatedHeads heads = ops::rotary(
            tape, ops_.at(name), own, config_.num_heads, config_.num_kv_heads, piece.weights[0],
            piece.weights[1], static_cast<float>(config_.rms_norm_eps),
            context.positions.narrow(0, piece.first, own.shape()[0]), context.rope.cos, context.rope.sin);
        return std::vector{heads.q, heads.k, heads.v};
      });
  return {rotated[0], rotated[1], rotated[2]};
}

Var Decoder::attention(Tape& tape, int64_t index, const Var& x, const Context& context) const {
  const std::string name = fmt::format("layers.{}.attention", index);
  const Var qkv = context.parameters.linear(tape, name + ".qkv", x, config_.qkv_bias);
  const Var y = merge_heads(tape, attend(tape, index, heads(tape, index, qkv, context), context));
  return context.parameters.linear(tape, name + ".output", y, config_.output_bias);
}

Var Decoder::attend(Tape& tape, int64_t index, const ops::RotatedHeads& heads, const Context& context) const {
  const ops::BoundOps& ops = ops_.at(fmt::format("layers.{}.attention", index));
  const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(config_.head_dim)));
  const int64_t window = config_.windows[static_cast<size_t>(index)];
  if (context.decoded_cache != nullptr)
    return tape.constant(ops::decode_attention(
        ops, {heads.q.value, heads.k.value, heads.v.value, context.decoded_cache->keys(index),
              context.decoded_cache->values(index), context.positions, scale, window}));
  Var k = heads.k, v = heads.v;
  if (context.cache != nullptr) {
    auto [keys, values] = context.cache->append(index, k.value, v.value);
    k = tape.constant(keys);
    v = tape.constant(values);
  }
  if (context.seen) {
    k = primitives::gather_rows(tape, k, *context.seen);
    v = primitives::gather_rows(tape, v, *context.seen);
  }
  ops::Attention op;
  op.cu_seqlens_q = context.cu_seqlens_q;
  op.cu_seqlens_k = context.cu_seqlens_k;
  op.scale = scale;
  op.window = window;
  return ops::attention(tape, ops, heads.q, k, v, op);
}

Var Decoder::mlp(Tape& tape, int64_t index, const Var& x, const Context& context) const {
  const std::string name = fmt::format("layers.{}.mlp", index);
  const ops::BoundOps& ops = ops_.at(name);
  Tensor y;  // where the product makes it
  const Var gate_up = context.parameters.linear(tape, name + ".gate_up", x, config_.mlp_bias,
                                                ops.get<ops::Swiglu>().in_products ? &y : nullptr);
  return context.parameters.linear(tape, name + ".down", ops::swiglu(tape, ops, gate_up, y),
                                   config_.mlp_bias);
}

Decoder::Stream Decoder::layer_forward(Tape& tape, int64_t index, const Stream& stream,
                                       const Context& context) const {
  const std::string name = fmt::format("layers.{}.", index);
  const ops::NormedSum in = norm(tape, name + "input_norm", stream, context);
  if (context.hidden_states != nullptr) context.hidden_states->push_back(in.sum.value);
  const ops::NormedSum mixed =
      norm(tape, name + "post_attention_norm", {in.sum, attention(tape, index, in.y, context)}, context);
  return {mixed.sum, mlp(tape, index, mixed.y, context)};
}

// Adds at its end, so that the tape keeps one tensor between layers.
Decoder::Stream Decoder::checkpointed_layer(Tape& tape, int64_t index, const Stream& stream,
                                            const Context& context) const {
  if (context.hidden_states != nullptr) context.hidden_states->push_back(stream.x.value);
  // Backward runs this again after `context` is gone: it keeps its own copy of the handles.
  Context again = context;
  again.hidden_states = nullptr;
  const auto body = [this, index, again](Tape& inner, const Var& start) {
    const Stream end = layer_forward(inner, index, {start, {}}, again);
    return residual_add(inner, end.x, end.branch);
  };
  return {tape.checkpoint(stream.x, body), {}};
}

Var Decoder::forward(Tape& tape, const DecoderInput& input, const Options& options) const {
  if (input.ids.numel() == 0) fail("a forward pass needs at least one token");
  invariant(options.cache == nullptr || !tape.recording(), "a KV cache is for inference");
  check_ids(input.ids.values<int32_t>());
  const RopeTables rope = rope_tables(furthest(input.positions) + 1);
  // With the tables themselves: a longer row may replace those of the decoder.
  take_for_granted("ids " + name_of(input.ids), [this, ids = input.ids, positions = input.positions, rope] {
    check_ids(ids.values<int32_t>());
    return furthest(positions) < rope.cos.dim(0);
  });
  // Layers ask for the same of the documents.
  std::optional<HostInputs> inputs;
  std::optional<HostInputs::Scope> scope;
  if (!HostInputs::recording()) scope.emplace(inputs.emplace(device()), false);
  Context context{from_host(input.positions, device()),
                  rope,
                  options.cache,
                  input.cu_seqlens,
                  input.cu_seqlens,
                  options.hidden_states,
                  adapted(options.adapters, input.ids.numel())};
  if (options.cache != nullptr) {
    invariant(input.cu_seqlens.numel() == 2, "a KV cache continues one document");
    const auto end = static_cast<int32_t>(options.cache->length() + input.ids.numel());
    context.cu_seqlens_k = Tensor::from(std::vector<int32_t>{0, end});
  }
  if (!input.continued.empty()) {
    invariant(options.cache == nullptr, "a KV cache continues one document");
    std::vector<int32_t> starts_k;
    context.seen = seen_rows(input, starts_k);
    take_for_granted("seen " + name_of(input.cu_seqlens), [input, found = starts_k] {
      std::vector<int32_t> now;
      seen_rows(input, now);
      return now == found;
    });
    context.cu_seqlens_k = Tensor::from(starts_k);
  }
  const bool checkpoint = options.checkpoint_layers && tape.recording();
  Stream stream{context.parameters.embedding(tape, from_host(input.ids, device())), {}};
  for (int64_t i = 0; i < config_.num_layers; ++i)
    stream =
        checkpoint ? checkpointed_layer(tape, i, stream, context) : layer_forward(tape, i, stream, context);
  if (options.cache != nullptr) options.cache->advance(input.ids.numel());
  const Var hidden = norm(tape, "norm", stream, context).y;
  if (options.hidden_states != nullptr) options.hidden_states->push_back(hidden.value);
  return hidden;
}

Var Decoder::decode(Tape& tape, const NextToken& input, const KvCache& cache) const {
  invariant(!tape.recording(), "a KV cache is for inference");
  Context context{input.positions, input.rope, nullptr, {}, {}, nullptr, adapted({{input.adapter, 1}}, 1),
                  &cache};
  Stream stream{context.parameters.embedding(tape, input.ids), {}};
  for (int64_t i = 0; i < config_.num_layers; ++i) stream = layer_forward(tape, i, stream, context);
  return norm(tape, "norm", stream, context).y;
}

bool Decoder::decodes_on_device() const {
  bool all = ops_.at("head").get<ops::Sample>().forward != nullptr;
  for (int64_t i = 0; i < config_.num_layers; ++i)
    all =
        all && ops_.at(fmt::format("layers.{}.attention", i)).get<ops::DecodeAttention>().forward != nullptr;
  return all;
}

Var Decoder::logits(Tape& tape, const Var& hidden, const Adapter* adapter) const {
  return adapted({{adapter, hidden.shape()[0]}}, hidden.shape()[0]).linear(tape, "head", hidden, false);
}

bool Decoder::trains_head(const AdapterRows& rows) const {
  if (parameters_.at(kHead).grad != nullptr) return true;
  return rows.adapter != nullptr &&
         (rows.adapter->update_of(kHead) != nullptr || rows.adapter->replaces(kHead));
}

ops::CrossEntropy::Vars Decoder::loss(Tape& tape, const Var& hidden, const Tensor& targets,
                                      const ops::CrossEntropy::Factors& factors,
                                      const AdapterRows& rows) const {
  const std::vector<AdapterRows> all(rows.adapter == nullptr ? 0 : 1, rows);
  return adapted(all, hidden.shape()[0]).loss(tape, kHead, hidden, targets, factors);
}

}  // namespace temper::layers
