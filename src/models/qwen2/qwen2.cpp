// Qwen2 and Qwen2.5: biases on q, k and v, optional sliding windows.
#include "models/config_reader.h"
#include "models/model.h"

namespace temper::models {
namespace {

layers::DecoderConfig configure_qwen2(ConfigReader& reader) {
  DenseConfig config;
  read_decoder(reader, config, 10000);
  config.qkv_bias = true;
  read_windows(reader, config);
  return decoder_of(config);
}

}  // namespace

void register_qwen2() { registry<Family>().add("qwen2", {configure_qwen2}); }

}  // namespace temper::models
