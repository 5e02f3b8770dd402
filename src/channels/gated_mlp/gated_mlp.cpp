#include "channels/gated_mlp/gated_mlp.h"

#include "layers/linear.h"
#include "ops/swiglu/swiglu.h"

namespace temper::channels {
namespace {

class BoundGatedMlp : public layers::BoundChannel {
 public:
  BoundGatedMlp(const GatedMlpConfig& config, const layers::Binding& binding)
      : gate_up_(binding, config.module + ".gate_up", config.bias),
        down_(binding, config.module + ".down", config.bias),
        swiglu_(binding.kernel<ops::Swiglu>(config.module)),
        activation_(config.activation) {}

  Var forward(Tape& tape, const Var& x, const layers::Pass& pass) const override {
    const bool in_products = swiglu_->traits.in_products && activation_ == ops::Activation::kSilu;
    Tensor made;  // where the product makes it
    const Var gate_up = gate_up_(tape, x, pass.rows, {.made = in_products ? &made : nullptr});
    const Var y = ops::swiglu(tape, swiglu_, gate_up, made, activation_);
    const bool through = in_products && gate_up.requires_grad();
    return down_(tape, y, pass.rows, {.gate_up = through ? &gate_up : nullptr});
  }

  bool batches_on_device() const override { return true; }
  std::string_view asks_host() const override { return {}; }

 private:
  layers::Linear gate_up_, down_;
  ops::Bound<ops::Swiglu> swiglu_;
  ops::Activation activation_;
};

class GatedMlp : public layers::Channel {
 public:
  explicit GatedMlp(const GatedMlpConfig& config) : c_(config) {}

  void declare(layers::WeightScope& weights) const override {
    std::vector<WeightSource> parts{{c_.module + ".gate_proj", c_.intermediate},
                                    {c_.module + ".up_proj", c_.intermediate}};
    if (c_.fused_in_files) parts = {{c_.module + ".gate_up_proj", 2 * c_.intermediate}};
    const WeightAxis intermediate = WeightAxis::divided("intermediate");
    weights.linear(c_.module + ".gate_up",
                   {intermediate, "hidden", c_.hidden, c_.bias, {{c_.intermediate}, {c_.intermediate}}},
                   parts);
    weights.linear(c_.module + ".down", {"hidden", intermediate, c_.intermediate, c_.bias},
                   {{c_.module + ".down_proj", c_.hidden}});
  }

  std::shared_ptr<const layers::Channel> on_tensor_ranks(int tensor) const override {
    GatedMlpConfig own = c_;
    own.intermediate = div_exact(c_.intermediate, tensor);
    return gated_mlp(own);
  }

  void name_ops(layers::OpScope& ops) const override {
    ops.linear(c_.module + ".gate_up", c_.hidden, 2 * c_.intermediate, c_.bias);
    ops.linear(c_.module + ".down", c_.intermediate, c_.hidden, c_.bias);
    ops.use<ops::Swiglu>(c_.module, {ops.dtype(), c_.intermediate, c_.activation});
  }

  std::unique_ptr<layers::BoundChannel> bind(const layers::Binding& binding) const override {
    return std::make_unique<BoundGatedMlp>(c_, binding);
  }

  double flops(int64_t tokens) const override {
    return 6 * static_cast<double>(tokens) * static_cast<double>(c_.hidden * c_.intermediate);
  }

  Json::Object describe() const override {
    Json::Object all{{"intermediate_size", c_.intermediate}, {"mlp_bias", c_.bias}};
    if (c_.activation == ops::Activation::kGeluTanh) all.emplace_back("hidden_act", "gelu_pytorch_tanh");
    return all;
  }

 private:
  GatedMlpConfig c_;
};

}  // namespace

std::shared_ptr<const layers::Channel> gated_mlp(const GatedMlpConfig& config) {
  return std::make_shared<GatedMlp>(config);
}

}  // namespace temper::channels
