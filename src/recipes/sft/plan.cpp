#include "recipes/sft/plan.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "layers/decoder.h"

namespace temper::recipes {
namespace {

int64_t& at(MemoryPlan& plan, MemoryTag tag) { return plan[static_cast<size_t>(tag)]; }

int64_t num_parameters(const layers::DecoderConfig& model) {
  int64_t count = 0;
  const WeightTable table = layers::decoder_weight_table(model);
  for (const WeightSpec& spec : table.specs()) count += spec.shape.numel();
  return count;
}

// Elements of one token, for activations of a layer.
struct Widths {
  int64_t hidden, inner, q, kv;
  explicit Widths(const layers::DecoderConfig& c)
      : hidden(c.hidden_size),
        inner(c.intermediate_size),
        q(c.num_heads * c.head_dim),
        kv(c.num_kv_heads * c.head_dim) {}
};

// What one layer keeps for its backward pass: two sums of the residual stream, q|k|v, attention's result and
// gate|up; also, unless they are made again, the sums' norms, the rotated heads and the gated product.
int64_t saved_per_token(const Widths& w, bool selective) {
  const int64_t kept = 2 * w.hidden + (w.q + 2 * w.kv) + w.q + 2 * w.inner;
  return selective ? kept : kept + 2 * w.hidden + (w.q + w.kv) + w.inner;
}

// Per parameter: two moments, and float32 weights beside lower precision.
int64_t optimizer_bytes(const RunConfig& config) {
  const bool master = config.model.dtype != DType::kF32 && config.train.master_weights;
  return 2 * size_of(config.train.optimizer.moments) + (master ? size_of(DType::kF32) : 0);
}

// The most that one token has at once while backward runs: gradients of the residual stream, and inside the
// MLP or the attention; there also the heads that were made again.
int64_t backward_per_token(const Widths& w, bool selective) {
  const int64_t qkv = w.q + 2 * w.kv, remade = selective ? w.q + w.kv : 0;
  return w.hidden + std::max({3 * w.inner, 2 * qkv, w.q + remade + qkv});
}

// Of all layers.
int64_t activations_per_token(const layers::DecoderConfig& model, Checkpointing checkpointing) {
  const Widths w(model);
  const bool selective = checkpointing == Checkpointing::kSelective;
  const int64_t layer = saved_per_token(w, selective);
  const int64_t layers =
      checkpointing == Checkpointing::kFull ? w.hidden * model.num_layers + layer : layer * model.num_layers;
  return layers + backward_per_token(w, selective);
}

}  // namespace

MemoryPlan plan_memory(const RunConfig& config, const layers::DecoderConfig& model) {
  const int64_t parameters = num_parameters(model), width = size_of(config.model.dtype);
  const int64_t floats = size_of(DType::kF32);
  const int64_t whole = config.train.rows_per_step * config.data.max_length;
  const int64_t limit = config.train.micro_batch_tokens;
  const int64_t tokens = limit == 0 ? whole : std::min(whole, std::max(limit, config.data.max_length));
  MemoryPlan plan;
  plan.fill(0);
  at(plan, MemoryTag::kWeights) = parameters * width + config.data.max_length * model.head_dim * floats;
  at(plan, MemoryTag::kGradients) = parameters * size_of(config.train.gradients);
  at(plan, MemoryTag::kOptimizer) = parameters * optimizer_bytes(config);
  at(plan, MemoryTag::kActivations) =
      tokens * activations_per_token(model, config.train.activation_checkpointing) * width;
  at(plan, MemoryTag::kWorkspace) = int64_t{64} << 20;
  return plan;
}

int64_t state_bytes(const layers::DecoderConfig& model) {
  return num_parameters(model) * 3 * size_of(DType::kF32) +
         (1 << 20);  // weights (or masters) and two moments
}

int64_t plan_disk(const RunConfig& config, const layers::DecoderConfig& model) {
  // The newest state is complete before the oldest goes; then the final and the best model.
  const int64_t states = config.checkpoint.keep_last + 1 + (config.data.eval.empty() ? 0 : 1);
  const int64_t models = config.data.eval.empty() ? 1 : 3;
  return states * state_bytes(model) + models * num_parameters(model) * size_of(config.model.dtype);
}

void check_memory(const MemoryPlan& plan, int64_t limit) {
  const int64_t total = std::accumulate(plan.begin(), plan.end(), int64_t{0});
  const int64_t activations = plan[static_cast<size_t>(MemoryTag::kActivations)];
  const int64_t fixed = total - activations;
  if (fixed > limit)
    fail_resources(
        "[memory] weights, gradients and optimizer states need {}, but only {} may be used; train a smaller "
        "model, "
        "use model.dtype bfloat16, or a machine with more memory",
        format_bytes(fixed), format_bytes(limit));
  if (total > limit)
    log_warning(
        fmt::format("about {} may be needed and {} may be used; if it runs out, lower "
                    "train.micro_batch_tokens or set train.activation_checkpointing to selective or full",
                    format_bytes(total), format_bytes(limit)));
}

}  // namespace temper::recipes
