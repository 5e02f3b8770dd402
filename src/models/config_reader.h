#pragma once
#include <set>
#include <string>
#include <vector>

#include "base/json/json.h"
#include "channels/experts/experts.h"
#include "models/dense.h"

namespace temper::models {

// Reads a config.json and remembers which keys were asked for. Those are the keys that the configuration
// class and the model of `transformers` read; the others have no effect there and none here, and unused()
// lists them.
class ConfigReader {
 public:
  ConfigReader(const Json& config, std::string where);
  const std::string& where() const { return where_; }

  // The value, or `otherwise` when the key is absent or null. Errors name the file and the key.
  int64_t integer(const std::string& key, int64_t otherwise);
  int64_t positive(const std::string& key, int64_t most);  // must be there: 1 to `most`
  int64_t positive(const std::string& key, int64_t otherwise, int64_t most);
  double number(const std::string& key, double otherwise);
  double not_negative(const std::string& key, double otherwise);
  bool boolean(const std::string& key, bool otherwise);
  std::string text(const std::string& key, const std::string& otherwise);
  const Json* find(const std::string& key);  // null when absent or null
  bool is_null(const std::string& key);      // there, as null

  // Refuses a key that changes the computation there and is not supported here, unless it is absent, null or
  // `neutral`. `why` completes the sentence "KEY is VALUE; …".
  void expect(const std::string& key, const Json& neutral, const std::string& why);
  [[noreturn]] void refuse(const std::string& key, const std::string& problem) const;
  // The same of what has no effect on inference: check_training() refuses it.
  void refuse_training(const std::string& key, const std::string& problem);
  void check_training() const {
    if (!refused_training_.empty()) refuse(refused_training_.front().first, refused_training_.front().second);
  }

  // What is wrong with a key without an effect on the model; `problem` completes a sentence as of refuse().
  void add_warning(const std::string& key, const std::string& problem);
  const std::vector<std::string>& warnings() const { return warnings_; }

  void add_unused(const std::string& key);  // a part of a value that was asked for: "rope_scaling.alpha"
  // The keys that were not asked for and are not written into every model's config.json, in the file's order.
  std::vector<std::string> unused() const;
  static std::vector<std::string> without_usual(std::vector<std::string> keys);  // those of every config.json
  // Keys that were asked for and are absent, of which one of unused() may be a misspelling.
  std::vector<std::string> absent() const;
  // The one of absent() that is meant; "" if none is.
  static std::string misspelt(const std::string& unused, const std::vector<std::string>& absent);

 private:
  const Json& config_;
  std::string where_;
  std::set<std::string> asked_;
  std::vector<std::string> parts_, warnings_;
  std::vector<std::pair<std::string, std::string>> refused_training_;  // key, problem
};

// What the decoder families share, with each family's defaults already in `config`.
void read_decoder(ConfigReader& reader, DenseConfig& config, double default_rope_theta);

// Both spellings: rope_theta + rope_scaling (before transformers 5) and rope_parameters (since).
struct RopeKinds {
  // Of each head, where the file does not say; none: of a family that rotates whole heads.
  std::optional<double> partial = {};
  // Of a family whose tokens may have three positions (time, height, width): how mrope_section shares the
  // pairs of a head between them, and its value where the file has none, if that fits the heads.
  std::optional<ops::RotarySections> sections = {};
};
layers::RopeConfig read_rope(ConfigReader& reader, double default_theta, int64_t max_positions,
                             const RopeKinds& kinds = {});
// Refuses sections whose sum is not half of what is rotated of a head, and leaves out the family's.
void check_sections(ConfigReader& reader, layers::RopeConfig& rope, int64_t head_dim);
// Those of layers that see all tokens and of those with a window: rope_theta + rope_scaling and
// rope_local_base_freq, or rope_parameters by type of layer.
struct RopesByType {
  layers::RopeConfig full, sliding;
};
RopesByType read_ropes_by_type(ConfigReader& reader, double full_theta, double sliding_theta,
                               int64_t max_positions);

// layer_types, or use_sliding_window / sliding_window / max_window_layers as qwen2 and qwen3 write them.
void read_windows(ConfigReader& reader, DenseConfig& config);

// layer_types, whose sliding_attention is `window`; false where they are not given. 0: refused, as `why`
// says.
bool read_layer_types(ConfigReader& reader, DenseConfig& config, int64_t window, const std::string& why);

// sliding_window in every layer; null: in none.
void read_window_of_all_layers(ConfigReader& reader, DenseConfig& config, int64_t otherwise);

// Of the gate; read_decoder() asks for silu as hidden_act unless the config has another.
void expect_activation(ConfigReader& reader, const std::string& key, const std::vector<std::string>& names);
// What config.json calls the sizes of experts; of several names the first that is there.
struct ExpertKeys {
  std::initializer_list<const char*> experts;
  const char* width;
};
// Their number, their width and how many a token gets.
channels::ExpertsConfig read_experts(ConfigReader& reader, int64_t hidden, const ExpertKeys& keys);
// The layers that have experts: every decoder_sparse_step-th, except those of mlp_only_layers.
std::vector<bool> read_mixed_layers(ConfigReader& reader, int64_t layers);
// The factor of the load balancing loss: router_aux_loss_coef where output_router_logits is true, else 0, as
// transformers trains.
double read_balance_factor(ConfigReader& reader);

// For families whose every layer sees all tokens before it: a window that is switched on is refused.
void expect_full_attention(ConfigReader& reader, const DenseConfig& config);

}  // namespace temper::models
