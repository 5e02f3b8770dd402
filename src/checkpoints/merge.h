#pragma once
#include <string>

#include "base/json/json.h"
#include "tensor/tensor.h"
#include "weights/weight_table.h"

namespace temper::checkpoints {

enum class MergedForm {
  kPlain,   // numbers, in the base's dtype
  kAsBase,  // codes and scales, in the form of the base, which must be quantized (checkpoints/requantized.h)
};

// Writes the model of `base` with the adapter of `adapter` added to its weights: W + scale · B A. Products
// and sums are float32, in the order of the ranks with fused multiply-adds, and rounded once to the base's
// dtype: the same bits as PEFT's merge_and_unload on a CPU. One parameter is held at a time. `config` and
// `table` are the model's. Errors: an adapter of another base, one that changes an embedding whose weights
// the head shares.
void merge_adapter(const std::string& adapter, const std::string& base, const Json& config,
                   const WeightTable& table, const std::string& output, int64_t max_shard_bytes,
                   MergedForm form = MergedForm::kPlain);

// weight [out, in] += scale · b [out, rank] a [rank, in], as above; all compact float32 on the CPU.
void add_low_rank(const Tensor& weight, const Tensor& b, const Tensor& a, float scale);

}  // namespace temper::checkpoints
