#include <algorithm>

#include "base/text.h"
#include "models/config_reader.h"

namespace temper::models {
namespace {

using layers::RopeConfig;
using layers::RopeType;

RopeType rope_type(const ConfigReader& reader, const std::string& key, const std::string& name) {
  if (name == "default") return RopeType::kDefault;
  if (name == "linear") return RopeType::kLinear;
  if (name == "llama3") return RopeType::kLlama3;
  if (name == "yarn") return RopeType::kYarn;
  reader.refuse(
      key, fmt::format("rope type '{}' is not supported; use one of [default, linear, llama3, yarn]", name));
}

// The keys that each rope type reads, beyond its name and theta.
std::vector<std::string> rope_keys(RopeType type) {
  switch (type) {
    case RopeType::kDefault:
      return {};
    case RopeType::kLinear:
      return {"factor"};
    case RopeType::kLlama3:
      return {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"};
    case RopeType::kYarn:
      return {"factor",           "original_max_position_embeddings",
              "attention_factor", "beta_fast",
              "beta_slow",        "mscale",
              "mscale_all_dim",   "truncate"};
  }
  return {};
}

class RopeReader {
 public:
  RopeReader(const ConfigReader& reader, std::string key, const Json& rope)
      : reader_(reader), key_(std::move(key)), rope_(rope) {
    if (!rope.is_object()) reader.refuse(key_, fmt::format("is {}, expected an object", rope.kind_name()));
  }

  RopeConfig read(RopeConfig rope, int64_t max_positions) {
    const Json* name = find("rope_type") != nullptr ? find("rope_type") : find("type");
    if (name != nullptr && !name->is_string()) reader_.refuse(key_, "rope_type must be a string");
    rope.type = rope_type(reader_, key_, name == nullptr ? "default" : name->as_string());
    refuse_unknown(rope.type);
    rope.theta = number("rope_theta").value_or(rope.theta);
    const double original =
        number("original_max_position_embeddings").value_or(static_cast<double>(max_positions));
    rope.original_max_position_embeddings = static_cast<int64_t>(original);
    rope.factor = number("factor").value_or(
        rope.type == RopeType::kYarn ? static_cast<double>(max_positions) / original : 1);
    rope.low_freq_factor = number("low_freq_factor").value_or(rope.low_freq_factor);
    rope.high_freq_factor = number("high_freq_factor").value_or(rope.high_freq_factor);
    rope.beta_fast = number("beta_fast").value_or(rope.beta_fast);
    rope.beta_slow = number("beta_slow").value_or(rope.beta_slow);
    rope.attention_factor = number("attention_factor");
    rope.mscale = number("mscale");
    rope.mscale_all_dim = number("mscale_all_dim");
    if (const Json* truncate = find("truncate")) rope.truncate = truncate->as_bool();
    check(rope);
    return rope;
  }

 private:
  const Json* find(std::string_view name) const {
    const Json* value = rope_.find(name);
    return value == nullptr || value->is_null() ? nullptr : value;
  }

  std::optional<double> number(std::string_view name) const {
    const Json* value = find(name);
    if (value == nullptr) return std::nullopt;
    if (!value->is_number())
      reader_.refuse(key_, fmt::format("{} is {}, expected a number", name, value->kind_name()));
    return value->as_double();
  }

  void refuse_unknown(RopeType type) const {
    std::vector<std::string> known = rope_keys(type);
    known.insert(known.end(), {"rope_type", "type", "rope_theta"});
    for (const auto& [name, value] : rope_.as_object()) {
      if (std::find(known.begin(), known.end(), name) != known.end() || value.is_null()) continue;
      if (name == "partial_rotary_factor" && value.is_number() && value.as_double() == 1) continue;
      reader_.refuse(
          key_, fmt::format("key '{}' is not known for this rope type; known are [{}]", name, join(known)));
    }
  }

  void check(const RopeConfig& rope) const {
    if (!(rope.theta > 0))
      reader_.refuse(key_, fmt::format("rope_theta is {}, expected a positive number", rope.theta));
    if (!(rope.factor > 0))
      reader_.refuse(key_, fmt::format("factor is {}, expected a positive number", rope.factor));
    if (rope.type != RopeType::kDefault && rope.type != RopeType::kYarn && find("factor") == nullptr)
      reader_.refuse(key_, "factor is missing");
    if (rope.original_max_position_embeddings <= 0)
      reader_.refuse(key_, "original_max_position_embeddings must be positive");
    if (rope.type == RopeType::kLlama3 && rope.high_freq_factor == rope.low_freq_factor)
      reader_.refuse(key_, "high_freq_factor must differ from low_freq_factor");
  }

  const ConfigReader& reader_;
  std::string key_;
  const Json& rope_;
};

}  // namespace

layers::RopeConfig read_rope(ConfigReader& reader, double default_theta, int64_t max_positions) {
  RopeConfig rope;
  rope.theta = reader.number("rope_theta", default_theta);
  if (!(rope.theta > 0))
    reader.refuse("rope_theta", fmt::format("is {}, expected a positive number", rope.theta));
  rope.original_max_position_embeddings = max_positions;
  const Json* scaling = reader.find("rope_scaling");
  const Json* parameters = reader.find("rope_parameters");
  if (scaling != nullptr && parameters != nullptr && !(*scaling == *parameters))
    reader.refuse("rope_scaling", "and rope_parameters are both given and differ; keep one of them");
  if (parameters != nullptr)
    return RopeReader(reader, "rope_parameters", *parameters).read(rope, max_positions);
  if (scaling != nullptr) return RopeReader(reader, "rope_scaling", *scaling).read(rope, max_positions);
  return rope;
}

}  // namespace temper::models
