// What a decoder is made of, before one is built: its description, weights and kernels.
#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "layers/decoder_modules.h"
#include "ops/adamw/adamw.h"
#include "ops/global_norm/global_norm.h"

namespace temper::layers {

std::string scope_of(size_t layer) { return fmt::format("layers.{}.", layer); }

std::array<std::pair<const char*, const std::string*>, 4> modules_of(const LayerNorms& norms) {
  return {{{"input_norm", &norms.before_mixer},
           {"mixer_norm", &norms.after_mixer},
           {"post_attention_norm", &norms.before_channel},
           {"channel_norm", &norms.after_channel}}};
}

const ops::Routing* routing_of(const DecoderConfig& config) {
  for (const Block& block : config.blocks)
    if (const ops::Routing* routing = block.channel->routing()) return routing;
  return nullptr;
}

Json describe(const DecoderConfig& config) {
  std::vector<std::pair<std::string, Json::Array>>
      layers;  // values of each layer by key, null where it has none
  for (size_t i = 0; i < config.blocks.size(); ++i)
    for (const Json::Object& part :
         {config.blocks[i].mixer->describe(), config.blocks[i].channel->describe()})
      for (const auto& [key, value] : part) {
        auto found =
            std::find_if(layers.begin(), layers.end(), [&](const auto& each) { return each.first == key; });
        if (found == layers.end())
          found = layers.insert(layers.end(), {key, Json::Array(config.blocks.size())});
        found->second[i] = value;
      }
  Json json = Json::Object{{"vocab_size", config.vocab_size},
                           {"hidden_size", config.hidden_size},
                           {"num_hidden_layers", static_cast<int64_t>(config.blocks.size())},
                           {"max_position_embeddings", config.max_positions},
                           {"rms_norm_eps", config.rms_norm_eps},
                           {"tie_word_embeddings", config.tied_head}};
  // Of families that differ from the usual there.
  if (config.norms != LayerNorms{}) {
    Json::Object norms;
    for (const auto& [module, source] : modules_of(config.norms)) norms.emplace_back(module, *source);
    json.set("norms", norms);
  }
  for (const auto& [key, value, usual] : {std::tuple{"norm_offset", config.norm_offset, 0.0},
                                          {"embedding_multiplier", config.multipliers.embedding, 1.0},
                                          {"residual_multiplier", config.multipliers.residual, 1.0},
                                          {"logits_divisor", config.multipliers.logits_divisor, 1.0}})
    if (value != usual) json.set(key, value);
  for (const auto& [key, values] : layers) {
    const bool alike = std::count(values.begin(), values.end(), values.front()) == std::ssize(values);
    json.set(key, alike ? values.front() : Json(values));
  }
  const quantizers::QuantizerPlan quantizers =
      quantizers::plan_quantizers(decoder_weight_table(config), config.quantize);
  Json::Object formats;
  for (const quantizers::PlannedQuantizer& each : quantizers.quantizers)
    formats.emplace_back(each.name, fmt::format("{}, {}{}", each.kind.format, each.groups(),
                                                each.of_input && each.kind.dynamic ? ", dynamic" : ""));
  if (!formats.empty()) json.set("quantizers", formats);
  if (config.gives_values) json.set("gives values", true);
  if (config.routers.float32) json.set("routers in float32", true);
  if (config.routers.balanced) json.set("experts in turn", true);
  return json;
}

double forward_flops(const DecoderConfig& config, std::span<const int32_t> document_lengths) {
  const int64_t tokens = std::accumulate(document_lengths.begin(), document_lengths.end(), int64_t{0});
  double flops = 2 * static_cast<double>(tokens) *
                 static_cast<double>(config.hidden_size * (config.gives_values ? 1 : config.vocab_size));
  for (const Block& block : config.blocks)
    flops += block.mixer->flops(document_lengths) + block.channel->flops(tokens);
  return flops;
}

WeightTable decoder_weight_table(const DecoderConfig& config) {
  const int64_t hidden = config.hidden_size;
  const std::string source_scope(config.published.text ? kTextInTables : "model.");
  WeightTable table;
  table.set_text_names(config.published.text);
  declare_embedding(table, config.vocabulary(), source_scope);
  for (size_t i = 0; i < config.blocks.size(); ++i) {
    WeightScope layer(table, scope_of(i), source_scope + scope_of(i), static_cast<int64_t>(i));
    const auto norms = modules_of(config.norms);
    const auto declare = [&](Place place) {
      const auto& [module, source] = norms[place];
      if (!source->empty()) Norm::declare(layer, module, *source, hidden, config.norm_offset);
    };
    declare(kBeforeMixer);
    config.blocks[i].mixer->declare(layer);
    declare(kAfterMixer);
    declare(kBeforeChannel);
    config.blocks[i].channel->declare(layer);
    declare(kAfterChannel);
  }
  WeightScope model(table, "", source_scope);
  Norm::declare(model, "norm", "norm", hidden, config.norm_offset);
  config.gives_values ? ValueHead::declare(table, config.hidden_size)
                      : declare_head(table, config.vocabulary());
  for (const std::string& beginning : config.published.kept_tensors) table.keep(beginning);
  if (config.published.text)
    for (const std::string& beginning : tower_beginnings()) table.keep(beginning);
  return table;
}

Stages decoder_stages(const DecoderConfig& config, const ModelStages& stages) {
  if (stages.count() == 1) return {};
  const WeightTable table = decoder_weight_table(config);
  Stages found{.count = stages.count(), .copies = std::vector<int>(table.specs().size(), -1)};
  for (const WeightSpec& spec : table.specs()) {
    const bool first = spec.lora == LoraRole::kEmbedding;
    found.of.push_back(spec.layer ? stages.stage_of(stages.parts[static_cast<size_t>(*spec.layer)])
                       : first    ? 0
                                  : stages.count() - 1);
  }
  for (const WeightTable::Tied& tied : table.tied())
    found.copies[static_cast<size_t>(table.find(tied.other) - table.specs().data())] = stages.count() - 1;
  return found;
}

ops::BoundOps bind_decoder(const DecoderConfig& config, DType dtype, const ops::OpsConfig& ops,
                           const HardwareFacts& facts, const std::string& family, const StateFormat& format,
                           const Mesh& mesh) {
  ops::Binder binder(ops, facts, family);
  OpScope model(binder, "", dtype, config.routers);
  const quantizers::QuantizerPlan quantizers =
      quantizers::plan_quantizers(decoder_weight_table(config), config.quantize);
  const ops::RmsNorm::Signature norm{dtype, config.hidden_size, static_cast<float>(config.norm_offset)};
  name_embedding_ops(model, config.vocabulary());
  if (!config.gives_values) name_head_ops(model, config.vocabulary(), mesh.tensor);
  model.use<ops::RmsNorm>("norm", norm);
  for (size_t i = 0; i < config.blocks.size(); ++i) {
    OpScope layer(binder, scope_of(i), dtype, config.routers, mesh.expert, &quantizers);
    for (const auto& [module, source] : modules_of(config.norms))
      if (!source->empty()) layer.use<ops::RmsNorm>(module, norm);
    const Block block = config.blocks[i].on_tensor_ranks(mesh.tensor);
    block.mixer->name_ops(layer);
    block.channel->name_ops(layer);
  }
  if (const ops::Routing* routing = routing_of(config))
    model.use<ops::LoadBalancingLoss>("routers", {dtype, routing->experts});
  for (const quantizers::PlannedQuantizer& each : quantizers.quantizers)
    model.use<ops::FakeQuantize>(each.name, {each.computes_in_float32() ? DType::kF32 : dtype, each.format});
  model.use<ops::AdamW>("optimizer", {dtype, format.master_weights, format.gradients, format.moments});
  model.use<ops::GlobalNorm>("optimizer", {format.gradients});
  return binder.finish();
}

}  // namespace temper::layers
