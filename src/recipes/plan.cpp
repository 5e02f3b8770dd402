#include "recipes/plan.h"

#include <algorithm>
#include <numeric>

#include "backends/gpu_limits.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "layers/decoder.h"
#include "recipes/adapter_config.h"
#include "recipes/recipe.h"

namespace temper::recipes {
namespace {

int64_t& at(MemoryPlan& plan, MemoryTag tag) { return plan[static_cast<size_t>(tag)]; }

int64_t num_elements(const WeightTable& table) {
  int64_t count = 0;
  for (const WeightSpec& spec : table.specs()) count += spec.shape.numel();
  return count;
}

int64_t num_parameters(const layers::DecoderConfig& model) {
  return num_elements(layers::decoder_weight_table(model));
}

// A frozen model as it is kept, and the largest of its weights as a product reads it.
struct Frozen {
  int64_t bytes = 0, widened = 0;
};
Frozen frozen_model(const RunConfig& config, const layers::DecoderConfig& model) {
  const int64_t width = size_of(config.model.dtype);
  const WeightTable table = layers::decoder_weight_table(model);
  Frozen frozen;
  for (const WeightSpec& spec : table.specs()) {
    const bool narrow = config.model.base_dtype && spec.quantize;
    frozen.bytes +=
        narrow ? spec.shape.numel() * size_of(*config.model.base_dtype) + spec.shape[0] * size_of(DType::kF32)
               : spec.shape.numel() * width;
    if (narrow) frozen.widened = std::max(frozen.widened, spec.shape.numel() * width);
  }
  return frozen;
}

// What is added to a model's parameters by all adapters of a run.
int64_t num_adapter_parameters(const RunConfig& config, const layers::DecoderConfig& model) {
  const WeightTable base = layers::decoder_weight_table(model);
  int64_t count = 0;
  for (const AdapterConfig& adapter : config.adapters)
    count += num_elements(lora_table(base, choose_adapter(adapter, base).plan));
  return count;
}

// What has gradients, moments and a place in checkpoints.
int64_t num_trained(const RunConfig& config, const layers::DecoderConfig& model) {
  return config.adapters.empty() ? num_parameters(model) : num_adapter_parameters(config, model);
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

// Bytes of one token's activations: what layers keep, which backward frees one by one, and what is there
// beside. `scores` is what a layer keeps besides when attention is a composition.
struct Activations {
  int64_t kept, beside;
};
Activations activations_per_token(const layers::DecoderConfig& model, Checkpointing checkpointing,
                                  DType dtype, int64_t scores) {
  const Widths w(model);
  const bool selective = checkpointing == Checkpointing::kSelective;
  const int64_t width = size_of(dtype), layer = saved_per_token(w, selective) * width + scores;
  const int64_t backward = backward_per_token(w, selective) * width;
  if (checkpointing == Checkpointing::kFull) return {w.hidden * width * model.num_layers, layer + backward};
  return {layer * model.num_layers, backward};
}

// `eager` attention keeps about four float32 per head, query and key, in documents as long as a row.
int64_t scores_per_token(const RunConfig& config, const layers::DecoderConfig& model) {
  const auto written = config.model.ops_implementation.to_ops().written;
  const auto attention = written.find("attn");
  if (attention == written.end() || attention->second != ops::kEager) return 0;
  return 4 * size_of(DType::kF32) * model.num_heads * config.data.max_length;
}

int64_t tokens_of_a_step(const RunConfig& config) {
  const TrainConfig& train = config.train;
  const int64_t row = row_tokens(config);
  return train.tokens_per_step > 0 ? std::max(train.tokens_per_step, row) : train.rows_per_step * row;
}

// Of the largest micro-batch.
int64_t tokens_at_once(const RunConfig& config) {
  const int64_t whole = tokens_of_a_step(config), limit = config.train.micro_batch_tokens;
  return limit == 0 ? whole : std::min(whole, std::max(limit, row_tokens(config)));
}

// Beside activations. In a step of one micro-batch of the whole model gradients move into the memory that
// backward frees, all but the head's, which is there first.
int64_t gradient_bytes(const RunConfig& config, const layers::DecoderConfig& model, int64_t kept) {
  const int64_t width = size_of(config.train.gradients), all = num_trained(config, model) * width;
  if (!config.adapters.empty() || tokens_at_once(config) < tokens_of_a_step(config)) return all;
  return all - std::min(all - model.vocab_size * model.hidden_size * width, kept);
}

// What kernels take while they run, the largest of them: on a GPU the head's logits with a product, or what
// attention's backward does: cuDNN's scores in documents as long as a row, and sums.
int64_t workspace_bytes(const RunConfig& config, const layers::DecoderConfig& model,
                        const HardwareFacts& facts) {
  if (facts.hardware != hardware::kGpu) return int64_t{64} << 20;
  const int64_t tokens = tokens_at_once(config), width = size_of(config.model.dtype);
  const int64_t chunk =
      std::min(tokens, std::max<int64_t>(1, backends::kLogitsBytes / (model.vocab_size * width)));
  const int64_t head =
      chunk * (model.vocab_size + 2 * model.hidden_size) * width + backends::kProductWorkspace;
  const int64_t document = model.num_heads * config.data.max_length * config.data.max_length * width;
  const int64_t documents = std::max<int64_t>(1, tokens / config.data.max_length);
  const int64_t sums = tokens * model.num_heads * model.head_dim * size_of(DType::kF32);
  const bool by_cudnn = config.model.dtype == DType::kBF16 && facts.compute_capability >= 90 &&
                        !backends::is_for_hopper(facts.compute_capability, model.head_dim);
  const int64_t scores =
      by_cudnn ? std::max(document, std::min(backends::kScoreBytes, documents * document)) : 0;
  return std::max(head, scores + sums);
}

int64_t sum(const MemoryPlan& plan) { return std::accumulate(plan.begin(), plan.end(), int64_t{0}); }

// What training needs however little is computed at once.
int64_t fixed_bytes(const MemoryPlan& plan) {
  return sum(plan) - plan[static_cast<size_t>(MemoryTag::kActivations)];
}

}  // namespace

MemoryPlan plan_memory(const RunConfig& config, const layers::DecoderConfig& model,
                       const HardwareFacts& facts) {
  const int64_t trained = num_trained(config, model), width = size_of(config.model.dtype);
  const Frozen frozen = frozen_model(config, model);
  const int64_t added = config.adapters.empty() ? 0 : trained * width;
  const int64_t floats = size_of(DType::kF32);
  MemoryPlan plan;
  plan.fill(0);
  const int64_t models = recipe_of(config).holds_second_model(config) ? 2 : 1;
  at(plan, MemoryTag::kWeights) =
      models * frozen.bytes + added + config.data.max_length * model.head_dim * floats;
  at(plan, MemoryTag::kOptimizer) = trained * optimizer_bytes(config);
  const auto [kept, beside] = activations_per_token(model, config.train.activation_checkpointing,
                                                    config.model.dtype, scores_per_token(config, model));
  at(plan, MemoryTag::kActivations) = tokens_at_once(config) * (kept + beside);
  at(plan, MemoryTag::kGradients) = gradient_bytes(config, model, tokens_at_once(config) * kept);
  at(plan, MemoryTag::kWorkspace) = workspace_bytes(config, model, facts) + frozen.widened;
  return plan;
}

int64_t state_bytes(const RunConfig& config, const layers::DecoderConfig& model) {
  return num_trained(config, model) * 3 * size_of(DType::kF32) +
         (1 << 20);  // weights (or masters) and two moments
}

int64_t plan_disk(const RunConfig& config, const layers::DecoderConfig& model) {
  // The newest state is complete before the oldest goes; then the final and the best model.
  const int64_t states = config.checkpoint.keep_last + 1 + (config.data.eval.empty() ? 0 : 1);
  const int64_t models = config.data.eval.empty() ? 1 : 3;
  return states * state_bytes(config, model) +
         models * num_trained(config, model) * size_of(config.model.dtype);
}

namespace {

// One change, and the run with it.
struct Change {
  std::string keys;
  RunConfig config;
};

// From what costs least speed to what costs most; each on top of those before it.
std::vector<Change> changes_of(RunConfig config) {
  std::vector<Change> changes;
  std::vector<std::string> keys;
  const auto add = [&](const std::string& key) {
    keys.push_back(key);
    changes.push_back({join(keys), config});
  };
  const int64_t rows = std::max<int64_t>(1, tokens_at_once(config) / row_tokens(config));
  for (int64_t fewer = rows / 2; fewer >= 1; fewer /= 2) {
    config.train.micro_batch_tokens = fewer * row_tokens(config);
    keys.clear();  // one number, ever smaller
    add(fmt::format("train.micro_batch_tokens: {}", config.train.micro_batch_tokens));
  }
  if (config.train.activation_checkpointing == Checkpointing::kNone) {
    config.train.activation_checkpointing = Checkpointing::kSelective;
    add("train.activation_checkpointing: selective");
    keys.pop_back();
  }
  if (config.train.activation_checkpointing != Checkpointing::kFull) {
    config.train.activation_checkpointing = Checkpointing::kFull;
    add("train.activation_checkpointing: full");
  }
  if (config.model.dtype == DType::kF32) {
    config.model.dtype = DType::kBF16;
    add("model.dtype: bfloat16");
  }
  if (!config.adapters.empty() && !config.model.base_dtype) {
    config.model.base_dtype = DType::kF8E4M3;
    add("model.base_dtype: float8_e4m3fn");
  }
  if (config.train.gradients == DType::kF32 || config.train.optimizer.moments == DType::kF32) {
    config.train.gradients = config.train.optimizer.moments = DType::kBF16;
    add("train.gradients: bfloat16, train.optimizer.moments: bfloat16");
  }
  if (config.train.master_weights) {
    config.train.master_weights = false;
    add("train.master_weights: false");
  }
  return changes;
}

}  // namespace

std::string what_would_fit(const RunConfig& config, const layers::DecoderConfig& model,
                           const HardwareFacts& facts, int64_t limit) {
  for (const Change& change : changes_of(config)) {
    const int64_t needed = sum(plan_memory(change.config, model, facts));
    if (needed <= limit) return fmt::format("{} (about {})", change.keys, format_bytes(needed));
  }
  return {};
}

void check_memory(const RunConfig& config, const layers::DecoderConfig& model, const HardwareFacts& facts,
                  int64_t limit) {
  const MemoryPlan plan = plan_memory(config, model, facts);
  if (sum(plan) <= limit) return;
  const std::string fits = what_would_fit(config, model, facts, limit);
  if (fixed_bytes(plan) > limit)
    fail_resources(
        "[memory] weights, gradients, optimizer states and workspace need {}, but only {} may be used on {}; "
        "{}",
        format_bytes(fixed_bytes(plan)), format_bytes(limit), to_string(facts.device),
        fits.empty() ? "train a smaller model, or use a device with more memory" : "what would fit: " + fits);
  log_warning(fmt::format("about {} may be needed and {} may be used on {}; {}", format_bytes(sum(plan)),
                          format_bytes(limit), to_string(facts.device),
                          fits.empty()
                              ? "if it runs out, train a smaller model or shorter rows (data.max_length)"
                              : "if it runs out, this would fit: " + fits));
}

}  // namespace temper::recipes
