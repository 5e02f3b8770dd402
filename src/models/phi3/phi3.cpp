// Phi-3 and Phi-4: fused q|k|v and gate|up in files, part of each head rotated. LongRoPE is not supported.
#include "base/error.h"
#include "models/config_reader.h"
#include "models/model.h"

namespace temper::models {
namespace {

layers::DecoderConfig configure_phi3(ConfigReader& reader) {
  DenseConfig config;
  config.rms_norm_eps = 1e-5;
  config.partial_rotary_factor = 1;
  config.fused_qkv = config.fused_gate_up = true;
  read_decoder(reader, config, 10000);
  reader.find("original_max_position_embeddings");  // of LongRoPE
  if (config.rope.type != layers::RopeType::kDefault)
    reader.refuse("rope_scaling", "has a type that is not supported for this model_type; only 'default' is");
  for (const char* key : {"resid_pdrop", "embd_pdrop"})
    if (const double dropout = reader.not_negative(key, 0); dropout > 0)
      reader.refuse_training(key,
                             fmt::format("is {}; this dropout is not supported in training, set it to 0.0 in "
                                         "this file to train without it",
                                         dropout));
  read_window_of_all_layers(reader, config, 0);
  return decoder_of(config);
}

}  // namespace

void register_phi3() { registry<Family>().add("phi3", {configure_phi3}); }

}  // namespace temper::models
