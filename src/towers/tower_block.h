#pragma once
#include "layers/residual_layer.h"
#include "layers/rope.h"
#include "ops/attention/attention.h"
#include "ops/rotary/rotary.h"
#include "towers/tower_mlp.h"
#include "towers/tower_norm.h"

namespace temper::towers {

// Attention and an MLP on the residual stream, each behind a norm, as all blocks of a tower have them.
// Queries, keys and values come of one matrix with biases; attention is not causal.
struct BlockConfig {
  int64_t width = 0, heads = 0;
  NormConfig norm = {};
  MlpConfig mlp = {};
  bool rotary = true;
  // Modules, here and in files.
  std::string norm1 = "norm1", norm2 = "norm2", qkv = "attn.qkv", output = "attn.proj";
  std::vector<std::string> qkv_in_files = {};  // where queries, keys and values are modules of their own

  int64_t head_dim() const { return width / heads; }
};

// What blocks with a rotary embedding read of a pass besides the stream.
struct BlockPass {
  Tensor places;            // [patches] int32: 0, 1, …, the rows of the tables
  layers::RopeTables rope;  // [patches, head_dim / 2]
};

class TowerBlock {
 public:
  TowerBlock(const layers::Binding& binding, const BlockConfig& config);
  static void declare(layers::TowerWeights& weights, const BlockConfig& config);
  static void name_ops(const layers::TowerOps& ops, const BlockConfig& config);
  // Of one forward pass over documents of attention that begin there.
  static double flops(const BlockConfig& config, std::span<const int32_t> starts);

  // `starts`: of the documents [documents + 1] int32, on the CPU.
  layers::Stream forward(Tape& tape, const layers::Stream& stream, const BlockPass& pass,
                         const Tensor& starts) const;

 private:
  ops::RotatedHeads cut(Tape& tape, const Var& qkv, const BlockPass& pass) const;

  int64_t heads_, head_dim_;
  bool rotates_;
  TowerNorm norm1_, norm2_;
  layers::Linear qkv_, output_;
  ops::Bound<ops::Rotary> rotary_;
  ops::Bound<ops::Attention> attention_;
  TowerMlp mlp_;
};

}  // namespace temper::towers
