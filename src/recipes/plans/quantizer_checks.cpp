#include "recipes/plans/quantizer_checks.h"

#include "base/error.h"
#include "quantizers/quantizer_parts.h"
#include "recipes/keys/recipe.h"

namespace temper::recipes {
namespace {

// What rounds the inputs of a pass must not depend on which rows are in it, where others compute the same
// rows in other passes. `others`: "rollouts", "the process of exchange"; empty: there are none.
void check_inputs(const quantizers::PlannedQuantizer& each, const Mesh& mesh, std::string_view others) {
  if (each.of_input && each.format.needs_amax() && !each.keeps_amax() &&
      each.kind.sharing != quantizers::Sharing::kRow && (mesh.size() > 1 || !others.empty()))
    fail(
        "[quantize] {} scales its input by the largest magnitude of a pass, which differs between {}: choose "
        "a "
        "format that is calibrated, or scaled by token{}",
        each.name, mesh.size() > 1 ? "one rank and several" : fmt::format("{} and training", others),
        mesh.size() > 1 ? ", or start one rank" : "");
  if (!others.empty() && each.name.ends_with("attention.kv_b.input_quantizer"))
    fail(
        "[quantize] {} rounds what {} with latent attention reads without rounding: add the rule "
        "{{modules: "
        "layers.*.attention.kv_b, inputs: none}}",
        each.name, others);
}

}  // namespace

void check_quantized(const Mesh& mesh, const layers::DecoderConfig& model, const RunConfig& config) {
  const quantizers::QuantizeOptions options = config.quantize.to_options();
  if (!options.any()) return;
  const WeightTable table = layers::decoder_weight_table(model);
  const Layout layout(table, mesh);
  const quantizers::QuantizerPlan plan = quantizers::plan_quantizers(table, options);
  const std::string_view others = recipe_of(config).rollouts != nullptr ? "rollouts"
                                  : !config.exchange.to.empty()         ? "the process of exchange"
                                                                        : "";
  for (const quantizers::PlannedQuantizer& each : plan.quantizers) {
    quantizers::part_of(
        each, layout[static_cast<size_t>(table.find(each.weight) - table.specs().data())].unsharded());
    check_inputs(each, mesh, others);
  }
}

}  // namespace temper::recipes
