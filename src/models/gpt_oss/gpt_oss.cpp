// gpt-oss: sinks in attention, a window in every other layer, experts with biases and a clamped gate.
#include "base/error.h"
#include "models/config_reader.h"
#include "models/model.h"

namespace temper::models {
namespace {

void read_alternating_layers(ConfigReader& reader, DenseConfig& config) {
  constexpr const char* kWindow = "sliding_window";
  const int64_t window = reader.integer(kWindow, 128);
  if (window <= 0 || reader.is_null(kWindow))
    reader.refuse(kWindow, fmt::format("is {}, expected a positive number",
                                       reader.is_null(kWindow) ? "null" : std::to_string(window)));
  if (read_layer_types(reader, config, window, "")) return;
  for (size_t i = 0; i < config.windows.size(); i += 2) config.windows[i] = window;
}

// What transformers assumes where the file says nothing about rotation is no default of other families.
void expect_rope(ConfigReader& reader) {
  if (reader.find("rope_parameters") == nullptr && reader.find("rope_scaling") == nullptr)
    reader.refuse("rope_scaling", "is missing; write it out, or {\"rope_type\": \"default\"} for none");
}

ops::ExpertsGate read_gate(ConfigReader& reader) {
  const double alpha = reader.number("swiglu_alpha", 1.702), limit = reader.number("swiglu_limit", 7);
  if (!(limit > 0)) reader.refuse("swiglu_limit", fmt::format("is {}, expected a positive number", limit));
  return {true, static_cast<float>(alpha), static_cast<float>(limit)};
}

layers::DecoderConfig configure_gpt_oss(ConfigReader& reader) {
  DenseConfig config;
  config.num_kv_heads = 8;  // where the file does not say
  config.head_dim = 64;
  config.rms_norm_eps = 1e-5;
  config.sinks = true;
  config.reads_mxfp4 = true;
  expect_rope(reader);
  read_decoder(reader, config, 150000);
  config.qkv_bias = config.output_bias = reader.boolean("attention_bias", true);
  read_alternating_layers(reader, config);
  channels::ExpertsConfig experts =
      read_experts(reader, config.hidden_size, {{"num_local_experts", "num_experts"}, "intermediate_size"});
  experts.routing.normalize = true;
  experts.biases = true;
  experts.form = read_gate(reader);
  experts.router = "router";
  experts.alternating_in_files = true;
  const auto channel = channels::experts(experts);
  layers::DecoderConfig decoder = decoder_of(config, [&](int64_t) { return channel; });
  decoder.balance_factor = read_balance_factor(reader);
  return decoder;
}

}  // namespace

void register_gpt_oss() { registry<Family>().add("gpt_oss", {configure_gpt_oss}); }

}  // namespace temper::models
