// Mistral 7B to Small 3 and Nemo, and the text of Small 3.1 and 3.2: a sliding window in every layer or in
// none.
#include "models/config_reader.h"
#include "models/model.h"

namespace temper::models {
namespace {

layers::DecoderConfig configure_mistral(ConfigReader& reader) {
  DenseConfig config;
  config.num_kv_heads = 8;  // where the file does not say
  read_decoder(reader, config, 10000);
  read_window_of_all_layers(reader, config, 4096);
  return decoder_of(config);
}

}  // namespace

void register_mistral() {
  registry<Family>().add("mistral", {configure_mistral});
  registry<Family>().add("mistral3", {.text = TextPart{"mistral"}});
}

}  // namespace temper::models
