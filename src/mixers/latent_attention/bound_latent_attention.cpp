#include "mixers/latent_attention/bound_latent_attention.h"

#include "base/error.h"
#include "layers/glue.h"
#include "layers/linear.h"
#include "layers/norm.h"
#include "mixers/latent_attention/latent_pages.h"
#include "ops/attention/attention.h"
#include "ops/latent_decode/latent_decode.h"
#include "ops/latent_heads/latent_heads.h"
#include "ops/latent_heads/latent_rotary.h"

namespace temper::mixers {
namespace {

using layers::AdaptedRows;
using layers::Pass;

// What a token's own x gives: queries, and what the sequence keeps.
struct Projected {
  Var q;       // [tokens, heads, nope + rope], rotated
  Var latent;  // [tokens, rank], normed
  Var k_rope;  // [tokens, rope], rotated
};

class BoundLatentAttention : public layers::BoundMixer {
 public:
  BoundLatentAttention(const LatentAttentionConfig& config, const layers::Binding& binding)
      : c_(config),
        s_(config),
        scale_(static_cast<float>(config.softmax_scale)),
        rope_(binding.rope.add(config.rope, config.qk_rope_head_dim)),
        down_(binding, "attention.down", config.bias),
        kv_norm_(binding, "attention.kv_a_norm", config.norm_eps),
        kv_b_(binding, "attention.kv_b", false),
        output_(binding, "attention.output", config.bias),
        rotary_(binding.kernel<ops::LatentRotary>(kLatentAttention)),
        heads_(binding.kernel<ops::LatentHeads>(kLatentAttention)),
        attention_(binding.kernel<ops::Attention>(kLatentAttention)),
        decode_(binding.kernel<ops::LatentDecode>(kLatentAttention)),
        expands_(binding.parameters.device().type == DeviceType::kCpu &&
                 binding.kernel<ops::Linear>("attention.kv_b")->batch_invariant) {
    if (s_.query_in > 0) query_.emplace(binding, "attention.query", false);
    if (c_.q_lora_rank > 0) q_norm_.emplace(binding, "attention.q_a_norm", config.norm_eps);
  }

  Var forward(Tape& tape, const Var& x, const Pass& pass) const override {
    const Projected own = project(tape, x, pass);
    const Var y = attend_to(tape, own.q, own.latent, own.k_rope, pass.rows, pass);
    return output_(tape, layers::merge_heads(tape, y), pass.rows);
  }
  Var forward_batch(Tape& tape, const Var& x, const Pass& pass,
                    const layers::MixerPages& pages) const override {
    const Projected own = project(tape, x, pass);
    const Tensor& kept = static_cast<const LatentPages&>(pages).rows();
    return output_(tape, layers::merge_heads(tape, of_batch(tape, own, pass, kept)), pass.rows);
  }
  // One token is computed from latents, more from keys and values; of batches with batch-invariant kernels
  // all.
  bool decodes_as_prompts() const override { return expands_; }
  bool batches_on_device() const override { return decode_->repeats; }
  std::string_view asks_host() const override {
    return attention_->repeats ? std::string_view() : ops::Attention::kName;
  }

 private:
  Projected project(Tape& tape, const Var& x, const Pass& pass) const {
    const int64_t rank = c_.kv_lora_rank;
    const std::vector<Var> parts =
        layers::split_columns(tape, down_(tape, x, pass.rows), {s_.of_down, rank, c_.qk_rope_head_dim});
    Var q = s_.of_down > 0 ? parts[0] : x, latent = parts[1];
    if (q_norm_) q = (*q_norm_)(tape, q, {}, pass.rows).y;
    if (query_)
      q = (*query_)(tape, q, pass.rows);
    else
      latent = layers::compact(tape, latent);  // its norm keeps it, but not the queries
    ops::LatentRotary op;
    op.heads = c_.num_heads;
    op.interleaved = c_.rope_interleave;
    op.positions = layers::places_of(pass);
    op.cos = pass.rope[rope_].cos;
    op.sin = pass.rope[rope_].sin;
    const ops::RotatedLatent rotated = ops::latent_rotary(tape, rotary_, q, parts[2], op);
    return {rotated.q, kv_norm_(tape, latent, {}, pass.rows).y, rotated.k_rope};
  }

  // Sequences of one adapter; op carries all of theirs.
  Var decode(Tape& tape, ops::LatentDecode op, const layers::AdapterRows& whose) const {
    op.scale = scale_;
    if (const layers::Adapter::Update* update = layers::update_of(whose, kv_b_.weight())) {
      invariant(update->slices.size() == 1, "kv_b is one module");
      const layers::ParameterStore& adapter = whose.adapter->parameters();
      op.a = adapter[update->a].value;
      op.b = adapter[update->slices[0].b].value;
      op.update_scale = update->slices[0].scale;
    }
    return tape.constant(ops::latent_decode(decode_, layers::weight_of(tape, whose, kv_b_.weight()), op));
  }

  // Of a batch's sequences, in front, that are computed from latents.
  int64_t from_latents(const layers::PagedBatch& batch) const { return expands_ ? 0 : batch.decoding; }

  // Those that decode, one adapter's after the other; then the others.
  Var of_batch(Tape& tape, const Projected& own, const Pass& pass, const Tensor& pages) const {
    const layers::PagedBatch& batch = *pass.batch;
    const int64_t decoding = from_latents(batch), tokens = own.q.shape()[0];
    const Tensor latents = primitives::concat_last(tape, own.latent, own.k_rope).value;
    std::vector<Var> results;
    std::vector<layers::AdapterRows> pieces(1, {nullptr, decoding});
    if (!pass.rows.all().empty()) {
      const AdaptedRows part = pass.rows.part(0, decoding);
      pieces.assign(part.all().begin(), part.all().end());
    }
    int64_t first = 0;
    for (const layers::AdapterRows& piece : pieces) {
      if (piece.rows == 0) continue;
      ops::LatentDecode op;
      op.q = own.q.value.narrow(0, first, piece.rows);
      op.latent = latents.narrow(0, first, piece.rows);
      op.cache = pages;
      op.sequences = batch.sequences.part(first, piece.rows);
      op.lengths = layers::places_of(pass).narrow(0, first, piece.rows);
      results.push_back(decode(tape, std::move(op), piece));
      first += piece.rows;
    }
    if (tokens > decoding) {
      const int64_t prompts = batch.sequences.count() - decoding;
      ops::write_pages(pages, batch.sequences.part(decoding, prompts),
                       latents.narrow(0, decoding, tokens - decoding));
      results.push_back(of_prompts(tape, own, pass, pages));
    }
    return results.size() == 1 ? results.front() : primitives::concat_first(tape, results);
  }

  Var of_prompts(Tape& tape, const Projected& own, const Pass& pass, const Tensor& pages) const {
    const layers::PagedBatch& batch = *pass.batch;
    const int64_t decoding = from_latents(batch), tokens = own.q.shape()[0] - decoding,
                  rank = c_.kv_lora_rank;
    const ops::PagedSequences sequences = batch.sequences.part(decoding, batch.sequences.count() - decoding);
    const Tensor all = ops::read_pages(pages, sequences);
    // Whose the tokens before are, too.
    std::vector<layers::AdapterRows> whose;
    for (int64_t s = 0; s < sequences.count() && !pass.rows.all().empty(); ++s) {
      whose.push_back(pass.rows.part(decoding + sequences.start(s), 1).all().front());
      whose.back().rows = sequences.length(s);
    }
    Pass of_sequences;
    of_sequences.cu_seqlens_q = sequences.starts;
    of_sequences.cu_seqlens_k = Tensor::from(sequences.starts_k());
    return attend_to(tape, primitives::narrow(tape, own.q, 0, decoding, tokens),
                     tape.constant(all.narrow(1, 0, rank).contiguous()),
                     tape.constant(all.narrow(1, rank, c_.qk_rope_head_dim)), {whose, all.dim(0)},
                     of_sequences);
  }

  Var attend_to(Tape& tape, const Var& q, const Var& latent, const Var& k_rope, const AdaptedRows& rows,
                const Pass& pass) const {
    if (pass.context != nullptr) return attend_to_all(tape, q, latent, k_rope, pass);
    return attend_to(tape, q, expand(tape, latent, k_rope, rows), pass);
  }

  struct KeysAndValues {
    Var k, v;  // [tokens, heads, dim]
  };
  KeysAndValues expand(Tape& tape, const Var& latent, const Var& k_rope, const AdaptedRows& rows) const {
    return heads_of(tape, kv_b_(tape, latent, rows), k_rope, c_.num_heads);
  }
  KeysAndValues heads_of(Tape& tape, const Var& kv, const Var& k_rope, int64_t heads) const {
    ops::LatentHeads expansion;
    expansion.heads = heads;
    expansion.nope_dim = c_.qk_nope_head_dim;
    const auto [k, v] = ops::latent_heads(tape, heads_, kv, k_rope, expansion);
    return {k, v};
  }
  // Of the heads that are the rank's of several that exchange them.
  KeysAndValues expand_own(Tape& tape, const Var& latent, const Var& k_rope,
                           const layers::ContextPass& context) const {
    const int ranks = context.heads.ranks(), place = context.heads.place();
    if (ranks == 1) return expand(tape, latent, k_rope, context.rows);
    const layers::ColumnBlock heads{s_.kv, c_.num_heads};
    const Var kv = kv_b_.columns(tape, latent, context.rows,
                                 {heads.first_column(place, ranks), heads.own_columns(ranks)});
    return heads_of(tape, kv, k_rope, c_.num_heads / ranks);
  }
  static KeysAndValues chosen(Tape& tape, const KeysAndValues& all, const primitives::ChosenRows& rows) {
    return {primitives::gather_rows(tape, all.k, rows), primitives::gather_rows(tape, all.v, rows)};
  }

  // What all tokens of the context ranks keep, and the queries that are here: latents travel, not the keys
  // and values of heads.
  Var attend_to_all(Tape& tape, const Var& q, const Var& latent, const Var& k_rope, const Pass& pass) const {
    const layers::ContextPass& context = *pass.context;
    const Var all = context.all.all_tokens(tape, layers::join_columns(tape, {latent, k_rope}));
    const std::vector<Var> parts = layers::split_columns(tape, all, {c_.kv_lora_rank, c_.qk_rope_head_dim});
    const KeysAndValues own =
        expand_own(tape, layers::compact(tape, parts[0]), layers::compact(tape, parts[1]), context);
    const Var queries = context.heads.own_of_heads(tape, {q})[0];
    if (!context.documents) return context.heads.tokens_of_heads(tape, attend_to(tape, queries, own, pass));
    const layers::ContextKeys& keys = context.documents->of(0);
    return context.heads.tokens_of_heads(
        tape, attend(tape, queries, chosen(tape, own, keys.seen), keys.cu_seqlens_q, keys.cu_seqlens_k));
  }

  // Of all tokens.
  Var attend_to(Tape& tape, const Var& q, const KeysAndValues& all, const Pass& pass) const {
    return attend(tape, q, pass.seen ? chosen(tape, all, *pass.seen) : all, pass.cu_seqlens_q,
                  pass.cu_seqlens_k);
  }

  Var attend(Tape& tape, const Var& q, const KeysAndValues& heads, const Tensor& cu_seqlens_q,
             const Tensor& cu_seqlens_k) const {
    ops::Attention op;
    op.cu_seqlens_q = cu_seqlens_q;
    op.cu_seqlens_k = cu_seqlens_k;
    op.scale = scale_;
    return ops::attention(tape, attention_, q, heads.k, heads.v, op);
  }

  LatentAttentionConfig c_;
  LatentSizes s_;
  float scale_;
  size_t rope_;
  layers::Linear down_;
  std::optional<layers::Linear> query_;
  std::optional<layers::Norm> q_norm_;
  layers::Norm kv_norm_;
  layers::Linear kv_b_, output_;
  ops::Bound<ops::LatentRotary> rotary_;
  ops::Bound<ops::LatentHeads> heads_;
  ops::Bound<ops::Attention> attention_;
  ops::Bound<ops::LatentDecode> decode_;
  // Whether tokens of a batch that decode are computed as training computes them, from the keys and values of
  // all that is kept: slower than from latents, where products have another order, but with training's bits.
  bool expands_;
};

}  // namespace

std::unique_ptr<layers::BoundMixer> bind_latent_attention(const LatentAttentionConfig& config,
                                                          const layers::Binding& binding) {
  return std::make_unique<BoundLatentAttention>(config, binding);
}

}  // namespace temper::mixers
