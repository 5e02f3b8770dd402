#include "recipes/quantizer_checks.h"

#include "base/error.h"
#include "layers/quantizer_parts.h"
#include "recipes/recipe.h"

namespace temper::recipes {
namespace {

// What rounds the inputs of a pass must not depend on which rows are in it, where others compute the same
// rows in other passes.
void check_inputs(const layers::PlannedQuantizer& each, const Mesh& mesh, bool rollouts) {
  if (each.of_input && each.format.needs_amax() && !each.keeps_amax() &&
      each.kind.sharing != layers::Sharing::kRow && (mesh.size() > 1 || rollouts))
    fail(
        "[quantize] {} scales its input by the largest magnitude of a pass, which differs between {}: choose "
        "a "
        "format that is calibrated, or scaled by token{}",
        each.name, mesh.size() > 1 ? "one rank and several" : "rollouts and training",
        mesh.size() > 1 ? ", or start one rank" : "");
  if (rollouts && each.name.ends_with("attention.kv_b.input_quantizer"))
    fail(
        "[quantize] {} rounds what rollouts of latent attention read without rounding: add the rule "
        "{{modules: "
        "layers.*.attention.kv_b, inputs: none}}",
        each.name);
}

// Rounded weights travel as numbers; what rounds values that pass does not.
void check_sending(const layers::PlannedQuantizer& each) {
  if (each.of_input)
    fail(
        "[exchange] {} rounds values that pass, and does not travel: the other process would compute "
        "otherwise than this run; quantize weights alone, or leave out exchange",
        each.name);
}

}  // namespace

void check_quantized(const Mesh& mesh, const layers::DecoderConfig& model, const RunConfig& config) {
  const layers::QuantizeOptions options = config.quantize.to_options();
  if (!options.any()) return;
  const WeightTable table = layers::decoder_weight_table(model);
  const Layout layout(table, mesh);
  const layers::QuantizerPlan plan = layers::plan_quantizers(table, options);
  for (const layers::PlannedQuantizer& each : plan.quantizers) {
    layers::part_of(each,
                    layout[static_cast<size_t>(table.find(each.weight) - table.specs().data())].unsharded());
    check_inputs(each, mesh, recipe_of(config).rollouts != nullptr);
    if (!config.exchange.to.empty()) check_sending(each);
  }
}

}  // namespace temper::recipes
