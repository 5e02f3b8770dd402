#include "towers/tower_block.h"

#include <cmath>

#include "layers/glue.h"

namespace temper::towers {
namespace {

constexpr const char* kAttention = "attn";

}  // namespace

TowerBlock::TowerBlock(const layers::Binding& binding, const BlockConfig& config)
    : heads_(config.heads),
      head_dim_(config.head_dim()),
      rotates_(config.rotary),
      norm1_(binding, config.norm1, config.norm),
      norm2_(binding, config.norm2, config.norm),
      qkv_(binding, config.qkv, true),
      output_(binding, config.output, true),
      attention_(binding.kernel<ops::Attention>(kAttention)),
      mlp_(binding, config.mlp) {
  if (rotates_) rotary_ = binding.kernel<ops::Rotary>(kAttention);
}

void TowerBlock::declare(layers::TowerWeights& weights, const BlockConfig& config) {
  const int64_t width = config.width;
  for (const std::string& norm : {config.norm1, config.norm2})
    TowerNorm::declare(weights, norm, config.norm, width);
  std::vector<WeightSource> parts{{config.qkv, 3 * width}};
  if (!config.qkv_in_files.empty()) parts.clear();
  for (const std::string& part : config.qkv_in_files) parts.push_back({part, width});
  weights.linear(config.qkv, width, parts);
  weights.linear(config.output, width, {{config.output, width}});
  TowerMlp::declare(weights, config.mlp);
}

void TowerBlock::name_ops(const layers::TowerOps& ops, const BlockConfig& config) {
  for (const std::string& norm : {config.norm1, config.norm2})
    TowerNorm::name_ops(ops, norm, config.norm, config.width);
  ops.linear(config.qkv, config.width, 3 * config.width);
  ops.linear(config.output, config.width, config.width);
  if (config.rotary) ops.use<ops::Rotary>(kAttention, {ops.dtype(), config.head_dim()});
  ops.use<ops::Attention>(kAttention, {.dtype = ops.dtype(),
                                       .heads = config.heads,
                                       .kv_heads = config.heads,
                                       .head_dim = config.head_dim(),
                                       .causal = false});
  TowerMlp::name_ops(ops, config.mlp);
}

double TowerBlock::flops(const BlockConfig& config, std::span<const int32_t> starts) {
  const auto width = static_cast<double>(config.width);
  double pairs = 0;
  for (size_t i = 0; i + 1 < starts.size(); ++i) {
    const double length = starts[i + 1] - starts[i];
    pairs += length * length;
  }
  return starts.back() * (8 * width * width + TowerMlp::flops_of_row(config.mlp)) + 4 * width * pairs;
}

ops::RotatedHeads TowerBlock::cut(Tape& tape, const Var& qkv, const BlockPass& pass) const {
  if (rotates_)
    return ops::rotary(tape, rotary_, qkv, {}, {},
                       {.heads = heads_,
                        .kv_heads = heads_,
                        .positions = pass.places,
                        .cos = pass.rope.cos,
                        .sin = pass.rope.sin});
  const int64_t width = heads_ * head_dim_;
  std::vector<Var> parts = layers::split_columns(tape, qkv, {width, width, width});
  for (Var& part : parts) part = layers::split_heads(tape, part, head_dim_);
  return {parts[0], parts[1], parts[2]};
}

layers::Stream TowerBlock::forward(Tape& tape, const layers::Stream& stream, const BlockPass& pass,
                                   const Tensor& starts) const {
  const TowerNorm::Result before = norm1_(tape, stream);
  const ops::RotatedHeads heads = cut(tape, qkv_(tape, before.y, {}), pass);
  ops::Attention op;
  op.cu_seqlens_q = op.cu_seqlens_k = starts;
  op.scale = 1 / std::sqrt(static_cast<float>(head_dim_));
  op.causal = false;
  const Var seen = ops::attention(tape, attention_, heads.q, heads.k, heads.v, op);
  const Var branch = output_(tape, layers::merge_heads(tape, seen), {});
  const TowerNorm::Result middle = norm2_(tape, {before.sum, branch});
  return {middle.sum, mlp_(tape, middle.y)};
}

}  // namespace temper::towers
