#pragma once
#include <set>
#include <string>
#include <vector>

#include "base/json.h"
#include "layers/decoder_config.h"

namespace temper::models {

// Reads a config.json and remembers which keys were asked for, so that finish() can refuse the others: every
// key is used, known to be irrelevant by name, or an error.
class ConfigReader {
 public:
  ConfigReader(const Json& config, std::string where);

  // The value, or `otherwise` when the key is absent or null. Errors name the file and the key.
  int64_t integer(const std::string& key, int64_t otherwise);
  int64_t positive(const std::string& key);  // must be there and above 0
  double number(const std::string& key, double otherwise);
  bool boolean(const std::string& key, bool otherwise);
  std::string text(const std::string& key, const std::string& otherwise);
  const Json* find(const std::string& key);  // null when absent or null

  void irrelevant(std::initializer_list<const char*> keys);
  void finish() const;
  [[noreturn]] void refuse(const std::string& key, const std::string& problem) const;

 private:
  const Json& config_;
  std::string where_;
  std::set<std::string> known_;
};

// What the decoder families share, with each family's defaults already in `config`.
void read_decoder(ConfigReader& reader, layers::DecoderConfig& config, double default_rope_theta);

// Both spellings: rope_theta + rope_scaling (before transformers 5) and rope_parameters (since).
layers::RopeConfig read_rope(ConfigReader& reader, double default_theta, int64_t max_positions);

// layer_types, or use_sliding_window / sliding_window / max_window_layers as qwen2 and qwen3 write them.
void read_windows(ConfigReader& reader, layers::DecoderConfig& config);

}  // namespace temper::models
