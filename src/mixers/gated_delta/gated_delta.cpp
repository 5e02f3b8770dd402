#include "mixers/gated_delta/gated_delta.h"

#include "mixers/gated_delta/bound_gated_delta.h"
#include "mixers/gated_delta/delta_pages.h"
#include "ops/causal_conv1d/causal_conv1d.h"
#include "ops/chunk_gated_delta_rule/chunk_gated_delta_rule.h"
#include "ops/chunk_gated_delta_rule/delta_gates.h"
#include "ops/chunk_gated_delta_rule/recurrent_gated_delta_rule.h"
#include "ops/rms_norm_gated/rms_norm_gated.h"

namespace temper::mixers {
namespace {

class GatedDelta : public layers::Mixer {
 public:
  explicit GatedDelta(const GatedDeltaConfig& config) : c_(config) {}

  void declare(layers::WeightScope& weights) const override {
    std::vector<WeightSource> qkvz{{"linear_attn.in_proj_qkv", c_.channels()},
                                   {"linear_attn.in_proj_z", c_.values()}},
        ba{{"linear_attn.in_proj_b", c_.heads}, {"linear_attn.in_proj_a", c_.heads}};
    if (c_.by_key_head) {
      qkvz = {{"linear_attn.in_proj_qkvz", c_.channels() + c_.values()}};
      ba = {{"linear_attn.in_proj_ba", 2 * c_.heads}};
    }
    // By key heads: one of them, with its values, after the other.
    const std::vector<WeightSegment> heads{{c_.keys()}, {c_.keys()}, {c_.values()}};
    std::vector<WeightSegment> wide = heads, narrow{{c_.heads}, {c_.heads}};
    wide.push_back({c_.values()});
    if (c_.by_key_head) {
      wide = {{c_.channels() + c_.values()}};
      narrow = {{2 * c_.heads}};
    }
    weights.linear("delta.qkvz", {WeightAxis::divided("delta_qkvz"), "hidden", c_.hidden, false, wide}, qkvz);
    weights.linear("delta.ba", {WeightAxis::divided("delta_ba"), "hidden", c_.hidden, false, narrow}, ba);
    weights.convolution("delta.conv.weight", WeightAxis::divided("delta_channels"), c_.width,
                        {"linear_attn.conv1d", c_.channels()}, heads);
    // Files may have these in float32 and other weights in bfloat16: exp(a_log) decays a state thousands of
    // times, and its roundings would add up.
    weights.float32_vector("delta.a_log", WeightAxis::divided("delta_heads"),
                           {"linear_attn.A_log", c_.heads});
    weights.float32_vector("delta.dt_bias", WeightAxis::divided("delta_heads"),
                           {"linear_attn.dt_bias", c_.heads});
    weights.float32_vector("delta.norm.weight", "delta_value_dim", {"linear_attn.norm.weight", c_.value_dim});
    weights.linear("delta.output", {"hidden", WeightAxis::divided("delta_values"), c_.values(), false},
                   {{"linear_attn.out_proj", c_.hidden}});
  }

  std::shared_ptr<const layers::Mixer> on_tensor_ranks(int tensor) const override {
    if (c_.key_heads % tensor != 0)
      fail(
          "[parallel.tensor] is {}, which does not divide the {} key heads of gated delta layers; choose a "
          "number "
          "that does",
          tensor, c_.key_heads);
    GatedDeltaConfig own = c_;
    own.key_heads = c_.key_heads / tensor;
    own.heads = c_.heads / tensor;
    return gated_delta(own);
  }

  // Its heads are divided in either way.
  std::string refuses_context(int ranks, int) const override {
    const std::string values = layers::refuses_heads("value heads of gated delta layers", c_.heads, ranks);
    return values.empty()
               ? layers::refuses_shared_heads("key heads of gated delta layers", c_.key_heads, ranks)
               : values;
  }

  void name_ops(layers::OpScope& ops) const override {
    const DType dtype = ops.dtype();
    ops.linear("delta.qkvz", c_.hidden, c_.channels() + c_.values(), false);
    ops.linear("delta.ba", c_.hidden, 2 * c_.heads, false);
    ops.linear("delta.output", c_.values(), c_.hidden, false);
    ops.use<ops::CausalConv1d>(kGatedDelta, {dtype, c_.channels(), c_.width});
    ops.use<ops::CausalConv1dUpdate>(kGatedDelta, {dtype, c_.channels(), c_.width});
    ops.use<ops::DeltaGates>(kGatedDelta, {dtype, c_.heads});
    ops.use<ops::ChunkGatedDeltaRule>(kGatedDelta, {dtype, c_.key_heads, c_.heads, c_.key_dim, c_.value_dim});
    ops.use<ops::RecurrentGatedDeltaRule>(kGatedDelta,
                                          {dtype, c_.key_heads, c_.heads, c_.key_dim, c_.value_dim});
    ops.use<ops::RmsNormGated>(kGatedDelta, {dtype, c_.value_dim});
  }

  std::unique_ptr<layers::BoundMixer> bind(const layers::Binding& binding) const override {
    return bind_gated_delta(c_, binding);
  }

  std::unique_ptr<layers::MixerPages> make_pages(const layers::PageSizes& sizes, DType dtype,
                                                 Device device) const override {
    return std::make_unique<DeltaPages>(c_, sizes.slots, dtype, device);
  }

  // Of the projections, and of the recurrence: what the state knows of a key, the update, the read. What
  // chunks multiply beyond that is not counted.
  double flops(std::span<const int32_t> document_lengths) const override {
    double tokens = 0;
    for (const int32_t length : document_lengths) tokens += static_cast<double>(length);
    const int64_t weights = c_.hidden * (c_.channels() + 2 * c_.values() + 2 * c_.heads);
    return 2 * tokens * static_cast<double>(weights + 3 * c_.values() * c_.key_dim);
  }

  Json::Object describe() const override {
    return {{"linear_num_key_heads", c_.key_heads},     {"linear_num_value_heads", c_.heads},
            {"linear_key_head_dim", c_.key_dim},        {"linear_value_head_dim", c_.value_dim},
            {"linear_conv_kernel_dim", c_.width},       {"eps of the gated norm", c_.norm_eps},
            {"projections by key head", c_.by_key_head}};
  }

 private:
  GatedDeltaConfig c_;
};

}  // namespace

std::shared_ptr<const layers::Mixer> gated_delta(const GatedDeltaConfig& config) {
  return std::make_shared<GatedDelta>(config);
}

}  // namespace temper::mixers
