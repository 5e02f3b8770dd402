#include "layers/binding.h"

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "ops/dropout/dropout.h"
#include "ops/linear/linear.h"
#include "ops/lora_linear/lora_linear.h"

namespace temper::layers {

void WeightScope::add(WeightSpec spec) {
  spec.layer = layer_;
  table_.add(std::move(spec));
}

void WeightScope::vector(const std::string& name, const WeightAxis& axis,
                         const std::vector<WeightSource>& sources, bool zeros,
                         std::vector<WeightSegment> segments) {
  WeightSpec spec;
  spec.name = scope_ + name;
  spec.axes = {axis};
  spec.decay = false;
  spec.zeros = zeros;
  spec.segments = std::move(segments);
  int64_t rows = 0;
  for (const WeightSource& source : sources) {
    spec.sources.push_back({source_scope_ + source.name, source.rows});
    rows += source.rows;
  }
  spec.shape = {rows};
  add(std::move(spec));
}

void WeightScope::norm_of_stream(const std::string& name, const WeightSource& source, bool zeros) {
  add({.name = scope_ + name,
       .shape = {source.rows},
       .axes = {"hidden"},
       .sources = {{source_scope_ + source.name, source.rows}},
       .decay = false,
       .zeros = zeros,
       .of_stream = true});
}

void WeightScope::linear(const std::string& name, const Matrix& matrix,
                         const std::vector<WeightSource>& modules) {
  int64_t rows = 0;
  std::vector<WeightSource> weights, biases;
  for (const WeightSource& module : modules) {
    rows += module.rows;
    weights.push_back({source_scope_ + module.name + ".weight", module.rows});
    biases.push_back({module.name + ".bias", module.rows});
  }
  add({.name = scope_ + name + ".weight",
       .shape = {rows, matrix.width},
       .axes = {matrix.out, matrix.in},
       .sources = weights,
       .lora = LoraRole::kLinear,
       .quantize = true,
       .segments = matrix.segments});
  if (matrix.bias) vector(name + ".bias", matrix.out, biases, false, matrix.segments);
}

void WeightScope::router(const std::string& name, const Matrix& matrix, const WeightSource& module,
                         const std::string& stacked) {
  const bool renamed = stacked != module.name;
  const Shape shape{module.rows, matrix.width};
  add({.name = scope_ + name,
       .shape = shape,
       .axes = {matrix.out, matrix.in},
       .sources = {{source_scope_ + module.name + ".weight", module.rows}},
       .lora = LoraRole::kRouter,
       .stacked = renamed ? source_scope_ + stacked + ".weight" : std::string(),
       .stacked_shape = renamed ? shape : Shape()});
}

void WeightScope::experts(const std::string& name, const Matrix& matrix, int64_t experts,
                          const std::vector<WeightSource>& modules, const std::string& stacked,
                          bool transposes) {
  WeightSpec spec;
  spec.name = scope_ + name + ".weight";
  spec.axes = {matrix.out, matrix.in};
  spec.lora = LoraRole::kExperts;
  spec.quantize = true;
  int64_t rows = 0;
  for (const WeightSource& module : modules) {
    rows += module.rows;
    spec.sources.push_back({source_scope_ + module.name + ".weight", module.rows});
  }
  spec.shape = {rows, matrix.width};
  spec.stacked = source_scope_ + stacked;
  spec.stacked_shape = {experts, rows / experts, matrix.width};
  spec.transposes_stacked = transposes;
  spec.experts = experts;
  add(std::move(spec));
}

void WeightScope::transposed_experts(const std::string& name, const Matrix& matrix, int64_t experts,
                                     const WeightSource& module, bool alternating) {
  // Gate and up of each expert, in memory one after the other.
  std::vector<WeightSegment> segments;
  if (alternating) segments.assign(static_cast<size_t>(2 * experts), {module.rows / (2 * experts)});
  add({.name = scope_ + name + ".weight",
       .shape = {module.rows, matrix.width},
       .axes = {matrix.out, matrix.in},
       .sources = {{source_scope_ + module.name, module.rows}},
       .quantize = true,
       .experts_in_files = experts,
       .experts = experts,
       .alternating = alternating,
       .mxfp4 = true,
       .segments = segments});
  if (!matrix.bias) return;
  add({.name = scope_ + name + ".bias",
       .shape = {module.rows},
       .axes = {matrix.out},
       .sources = {{source_scope_ + module.name + "_bias", module.rows}},
       .decay = false,
       .experts_in_files = experts,
       .experts = experts,
       .alternating = alternating,
       .segments = segments});
}

void WeightScope::float32_vector(const std::string& name, const WeightAxis& axis, const WeightSource& source,
                                 bool buffer) {
  add({.name = scope_ + name,
       .shape = {source.rows},
       .axes = {axis},
       .sources = {{source_scope_ + source.name, source.rows}},
       .decay = false,
       .dtype = DType::kF32,
       .buffer = buffer});
}

void WeightScope::convolution(const std::string& name, const WeightAxis& axis, int64_t width,
                              const WeightSource& module, std::vector<WeightSegment> segments) {
  add({.name = scope_ + name,
       .shape = {module.rows, 1, width},
       .axes = {axis, "one", "width"},
       .sources = {{source_scope_ + module.name + ".weight", module.rows}},
       .segments = std::move(segments)});
}

void WeightScope::ignore(const std::string& source, const std::string& reason) {
  table_.ignore(source_scope_ + source, reason);
}

void OpScope::linear(const std::string& module, int64_t in, int64_t out, bool bias) {
  use<ops::Linear>(module, {dtype_, in, out, bias});
  use<ops::LoraLinear>(module, {dtype_, in, out, bias});
  use<ops::Dropout>(module, {dtype_});
}

const quantizers::PlannedQuantizer* OpScope::input_quantizer(const std::string& module) const {
  return quantizers_ == nullptr ? nullptr : quantizers_->find(scope_ + module + ".input_quantizer");
}

bool OpScope::reads_inputs(const std::string& module) const {
  if (quantizers_ == nullptr) return false;
  const quantizers::PlannedQuantizer* const weight = quantizers_->find(scope_ + module + ".weight_quantizer");
  return input_quantizer(module) != nullptr || (weight != nullptr && weight->scales_columns());
}

std::shared_ptr<const quantizers::BoundQuantizer> Binding::quantizer(const std::string& name) const {
  quantizers::Quantizer* const own = quantizers == nullptr ? nullptr : quantizers->find(name);
  if (own == nullptr) return nullptr;
  return std::make_shared<quantizers::BoundQuantizer>(*quantizers, *own, ops.at<ops::FakeQuantize>(name));
}

std::shared_ptr<const quantizers::BoundQuantizer> Binding::input_quantizer(const std::string& module) const {
  if (auto own = quantizer(scope + module + ".input_quantizer")) return own;
  quantizers::Quantizer* const weight =
      quantizers == nullptr ? nullptr : quantizers->find(scope + module + ".weight_quantizer");
  if (weight == nullptr || !weight->planned.scales_columns()) return nullptr;
  return std::make_shared<quantizers::BoundQuantizer>(*quantizers, *weight);
}

Tensor Binding::added_elsewhere(const BoundWeight& bias) const {
  if (!bias.exists() || ranks.is_first()) return {};
  const Tensor& value = bias.parameter().value;
  return Tensor::zeros(value.shape(), value.dtype(), MemoryTag::kWeights, parameters.device());
}

BoundWeight Binding::weight(const std::string& name) const {
  BoundWeight weight = parameters.bound(scope + name);
  constexpr std::string_view kWeight = ".weight";
  if (name.ends_with(kWeight))
    weight.set_quantizer(
        quantizer(scope + name.substr(0, name.size() - kWeight.size()) + ".weight_quantizer"));
  return weight;
}

size_t RopeTableSet::add(const RopeConfig& config, int64_t head_dim) {
  const Key key{config, rotated_width(config, head_dim)};
  const auto found = std::find(keys_.begin(), keys_.end(), key);
  const auto place = static_cast<size_t>(found - keys_.begin());
  if (found == keys_.end()) keys_.push_back(key);
  return place;
}

bool RopeTableSet::takes_three_positions() const {
  return std::any_of(keys_.begin(), keys_.end(), [](const Key& key) { return key.config.sections.exist(); });
}

const std::vector<RopeTables>& RopeTableSet::up_to(int64_t positions) {
  if (positions > max_positions_)
    fail("{} positions are asked for; the model's max_position_embeddings is {}", positions, max_positions_);
  if (length_ < positions) {
    const auto grown =
        static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(positions, 256))));
    const int64_t length = std::min(grown, max_positions_);
    // Those that are there stay in use until all new ones are: memory may run out.
    std::vector<RopeTables> tables;
    for (const Key& key : keys_) {
      const RopeTables made = make_rope_tables(key.config, key.width, length);
      tables.push_back(
          {made.cos.on(device_, MemoryTag::kWeights), made.sin.on(device_, MemoryTag::kWeights)});
    }
    tables_ = std::move(tables);
    length_ = length;
  }
  return tables_;
}

}  // namespace temper::layers
