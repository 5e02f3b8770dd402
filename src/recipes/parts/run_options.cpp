#include "recipes/parts/run_options.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "recipes/keys/recipe.h"

namespace temper::recipes {

optimizers::AdamWOptions adamw_options(const TrainConfig& train) {
  const OptimizerConfig& o = train.optimizer;
  return {o.betas[0],
          o.betas[1],
          o.eps,
          o.weight_decay,
          o.decay_all,
          train.format(),
          static_cast<uint64_t>(train.seed)};
}

training::TrainerOptions trainer_options(const RunConfig& config, const layers::Decoder& model,
                                         size_t num_sources) {
  const RouterConfig& router = config.train.router;
  const bool any = router.balance_loss.value_or(0) > 0 || router.global_balance || router.bias_rate > 0 ||
                   router.options != layers::RouterOptions{};
  if (any && model.num_routers() == 0)
    fail("[train.router] is set, but the model has no routers; leave it out");
  const auto& layers = model.router_layers();
  const bool biased =
      std::any_of(layers.begin(), layers.end(), [&](size_t i) { return model.choice_bias(i) != nullptr; });
  if (router.global_balance && !config.adapters.empty())
    fail(
        "[train.router.balance_scope] is global, which training of adapters does not have; use micro_batch, "
        "with train.micro_batch_tokens: 0 for the loads of the whole update");
  if (router.bias_rate > 0 && (!biased || !config.adapters.empty()))
    fail("[train.router.bias_rate] is {}, but {}; leave it out", router.bias_rate,
         biased ? "a frozen model's biases stay as they are" : "the model's routers have no correction bias");
  return {
      config.train.max_grad_norm,
      config.train.compute.micro_batch_tokens,
      config.train.compute.activation_checkpointing,
      config.train.z_loss,
      config.train.compute.cuda_graph,
      num_sources,
      {router.balance_loss.value_or(model.config().balance_factor), router.global_balance, router.bias_rate},
      config.train.compute.keep_delta_states,
      config.parallel.schedule()};
}

models::BuildOptions build_options(const RunConfig& config, const HardwareFacts& facts,
                                   ops::Preferences preferred) {
  models::BuildOptions build;
  build.dtype = config.model.dtype;
  build.base_dtype = config.model.base_dtype;
  build.ops = config.model.ops_implementation.to_ops();
  build.ops->strict = config.model.strict_kernels;
  for (const auto& [field, kernel] : recipe_of(config).kernels(config, true))
    build.ops->written.emplace(field, kernel);
  build.ops->preferred = std::move(preferred);
  build.purpose = models::Purpose::kTraining;
  build.facts = facts;
  build.format = config.train.format();
  build.routers = config.train.router.options;
  build.quantize = config.quantize.to_options();
  return build;
}

models::BuildOptions own_build_options(const RunConfig& config, const HardwareFacts& facts,
                                       ops::Preferences preferred) {
  models::BuildOptions build = build_options(config, facts, std::move(preferred));
  build.quantize = {};
  build.base_dtype.reset();
  return build;
}

}  // namespace temper::recipes
