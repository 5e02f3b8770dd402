#include "models/export_norms.h"

#include <algorithm>

namespace temper::models {
namespace {

using quantizers::Quantizer;

struct Reader {
  const char* norm;
  const char* module;  // that reads it
  const char* other;   // of the same mixer or channel, which reads something else
};
constexpr Reader kReaders[] = {{"input_norm.weight", "attention.qkv", "attention.output"},
                               {"post_attention_norm.weight", "mlp.gate_up", "mlp.down"}};

// Whether no other matrix of the mixer or channel may read the norm.
bool reads_alone(const WeightTable& table, const std::string& layer, const Reader& reader) {
  const std::string module = layer + reader.module;
  const std::string beginning = module.substr(0, module.rfind('.') + 1);
  return std::ranges::all_of(table.specs(), [&](const WeightSpec& spec) {
    return spec.shape.ndim() < 2 || !spec.name.starts_with(beginning) || spec.name == module + ".weight" ||
           spec.name == layer + reader.other + ".weight";
  });
}

}  // namespace

FoldedNorms folded_norms(const layers::Decoder& model) {
  FoldedNorms folded;
  const WeightTable& table = model.parameters().table();
  for (const Quantizer& each : model.quantizers().all()) {
    const quantizers::PlannedQuantizer& planned = each.planned;
    if (!each.columns.exist() ||
        (!planned.format.has_blocks() && planned.kind.sharing != quantizers::Sharing::kBlock))
      continue;
    for (const Reader& reader : kReaders) {
      const std::string module = planned.module();
      if (!module.ends_with(std::string(".") + reader.module)) continue;
      const std::string layer = module.substr(0, module.size() - std::string_view(reader.module).size());
      if (table.find(layer + reader.norm) != nullptr && reads_alone(table, layer, reader))
        folded.emplace(layer + reader.norm, &each);
    }
  }
  return folded;
}

Tensor folded_norm(const Tensor& weight, const Quantizer& quantizer, double offset) {
  const Tensor wide = weight.contiguous().to(DType::kF32), folded = wide.clone(MemoryTag::kWorkspace);
  const auto added = static_cast<float>(offset);
  for (int64_t c = 0; c < folded.numel(); ++c)
    folded.data<float>()[c] =
        (wide.data<float>()[c] + added) * quantizer.columns.whole.data<float>()[c] - added;
  return folded.to(weight.dtype(), MemoryTag::kWorkspace);
}

}  // namespace temper::models
