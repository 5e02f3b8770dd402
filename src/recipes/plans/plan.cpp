#include "recipes/plans/plan.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "device/host_memory.h"
#include "recipes/keys/recipe.h"
#include "recipes/plans/mesh_proposals.h"

namespace temper::recipes {
namespace {

int64_t rows_of_micro_batch(const RunConfig& config, const Sample& sample) {
  const int64_t rows = rows_of_update(config, sample), most = config.train.compute.micro_batch_tokens;
  return most == 0 ? rows : std::min(rows, most / row_tokens(config));
}

// What training needs however little is computed at once.
int64_t fixed_bytes(const MemoryPlan& plan) {
  return plan.total - std::min(plan.total, plan.of(MemoryTag::kActivations));
}

// One change, and the run with it.
struct Change {
  std::string keys;
  RunConfig config;
};

// From what costs least speed to what costs most; each on top of those before it.
std::vector<Change> changes_of(RunConfig config, const Sample& sample) {
  std::vector<Change> changes;
  std::vector<std::string> keys;
  const auto add = [&](const std::string& key) {
    keys.push_back(key);
    changes.push_back({join(keys), config});
  };
  const int64_t rows = std::max<int64_t>(1, rows_of_micro_batch(config, sample));
  for (int64_t fewer = rows / 2; fewer >= 1; fewer /= 2) {
    config.train.compute.micro_batch_tokens = fewer * row_tokens(config);
    keys.clear();  // one number, ever smaller
    add(fmt::format("train.micro_batch_tokens: {}", config.train.compute.micro_batch_tokens));
  }
  if (config.checkpoint.async) {
    config.checkpoint.async = false;
    add("checkpoint.async: false");
  }
  if (config.train.compute.activation_checkpointing == Checkpointing::kNone) {
    config.train.compute.activation_checkpointing = Checkpointing::kSelective;
    add("train.activation_checkpointing: selective");
    keys.pop_back();
  }
  if (config.train.compute.activation_checkpointing != Checkpointing::kFull) {
    config.train.compute.activation_checkpointing = Checkpointing::kFull;
    add("train.activation_checkpointing: full");
  }
  if (config.model.dtype == DType::kF32) {
    config.model.dtype = DType::kBF16;
    add("model.dtype: bfloat16");
  }
  const bool narrows = !config.adapters.empty() && !config.model.base_dtype;
  const size_t narrowed = keys.size();
  if (narrows) {
    config.model.base_dtype = primitives::FrozenFormat::kFloat8;
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
  if (narrows) {
    config.model.base_dtype = primitives::FrozenFormat::kNf4Double;
    keys.erase(keys.begin() + static_cast<std::ptrdiff_t>(narrowed));
    add("model.base_dtype: nf4_double");
  }
  return changes;
}

}  // namespace

std::string what_would_fit(const RunConfig& config, const Setting& setting, int64_t limit) {
  for (const Change& change : changes_of(config, setting.sample_of(0))) try {
      const int64_t needed = rehearse(change.config, setting).total;
      if (needed <= limit) return fmt::format("{} (about {})", change.keys, format_bytes(needed));
    } catch (const Error&) {
      continue;  // kernels that were written do not take it
    }
  return {};
}

namespace {

// Keys to change, or another mesh of as many ranks.
std::string what_or_which_mesh(const RunConfig& config, const Setting& setting, int64_t limit) {
  std::vector<std::string> ways;
  const auto add = [&](const std::string& way) {
    if (!way.empty()) ways.push_back(way);
  };
  add(what_would_fit(config, setting, limit));
  const int ranks = setting.mesh.size() * static_cast<int>(config.parallel.pipeline);
  if (ranks > 1)
    if (const std::string meshes = proposed_meshes(config, setting, ranks, limit); !meshes.empty())
      add("parallel: " + meshes);
  return join(ways, "; or ");
}

// The device, with whose limit it is that leaves so much, where that is a limit of this process.
std::string place_of_limit(const RunConfig& config, const Setting& setting) {
  const std::string device = to_string(setting.facts.device);
  if (setting.facts.hardware != hardware::kCpu || config.memory_limit_mib > 0) return device;
  return device + device::named_limit();
}

}  // namespace

void check_memory(const RunConfig& config, const Setting& setting, const RunMemory& plan, int64_t limit) {
  if (const int64_t free = available_host_bytes() / setting.ranks_here; plan.host_copies > free)
    fail_resources(
        "[checkpoint.async] copies states to the CPU's memory, where they take {}, but only {} are free for "
        "each rank; set checkpoint.async: false, or use more ranks that share the states (parallel.shard)",
        format_bytes(plan.host_copies), format_bytes(free));
  else if (plan.rollouts && setting.facts.hardware != hardware::kCpu)
    plan.rollouts->check_host(plan.host_copies, free);
  if (plan.total <= limit) return;
  const std::string fits = what_or_which_mesh(config, setting, limit);
  const std::string device = place_of_limit(config, setting);
  if (fixed_bytes(plan) > limit)
    fail_resources(
        "[memory] weights, gradients, optimizer states and workspace need {}, but only {} may be used on {}; "
        "{}",
        format_bytes(fixed_bytes(plan)), format_bytes(limit), device,
        fits.empty() ? "train a smaller model, or use a device with more memory" : "this would fit: " + fits);
  log_warning(fmt::format("about {} may be needed and {} may be used on {}; {}", format_bytes(plan.total),
                          format_bytes(limit), device,
                          fits.empty()
                              ? "if it runs out, train a smaller model or shorter rows (data.max_length)"
                              : "if it runs out, this would fit: " + fits));
}

}  // namespace temper::recipes
