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

// The keys that each rope type reads, beyond its name and theta; others have no effect.
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

constexpr int64_t kMostPairs = 1 << 20;
constexpr const char *kPartial = "partial_rotary_factor", *kSections = "mrope_section",
                     *kInterleaved = "mrope_interleaved";

class RopeReader {
 public:
  RopeReader(ConfigReader& reader, std::string key, const Json& rope, const RopeKinds& kinds)
      : reader_(reader),
        key_(std::move(key)),
        rope_(rope),
        partial_(kinds.partial.has_value()),
        sections_(kinds.sections) {
    if (!rope.is_object()) reader.refuse(key_, fmt::format("is {}, expected an object", rope.kind_name()));
  }

  RopeConfig read(RopeConfig rope, int64_t max_positions) {
    const Json* name = find("rope_type") != nullptr ? find("rope_type") : find("type");
    if (name != nullptr && !name->is_string()) reader_.refuse(key_, "rope_type must be a string");
    const bool usual = name == nullptr || (sections_ && name->as_string() == "mrope");
    rope.type = rope_type(reader_, key_, usual ? "default" : name->as_string());
    check_keys(rope.type);
    rope.theta = number("rope_theta").value_or(rope.theta);
    if (partial_) rope.partial_rotary_factor = number(kPartial).value_or(rope.partial_rotary_factor);
    if (sections_) rope.sections = sections();
    rope.original_max_position_embeddings = original_positions(rope.type, max_positions);
    rope.factor = number("factor").value_or(
        rope.type == RopeType::kYarn
            ? static_cast<double>(max_positions) / static_cast<double>(rope.original_max_position_embeddings)
            : 1);
    rope.low_freq_factor = number("low_freq_factor").value_or(rope.low_freq_factor);
    rope.high_freq_factor = number("high_freq_factor").value_or(rope.high_freq_factor);
    rope.beta_fast = number("beta_fast").value_or(rope.beta_fast);
    rope.beta_slow = number("beta_slow").value_or(rope.beta_slow);
    rope.attention_factor = number("attention_factor");
    rope.mscale = number("mscale");
    rope.mscale_all_dim = number("mscale_all_dim");
    if (const Json* truncate = find("truncate")) {
      if (!truncate->is_bool())
        reader_.refuse(key_, fmt::format("truncate is {}, expected true or false", truncate->dump()));
      rope.truncate = truncate->as_bool();
    }
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
      reader_.refuse(key_, fmt::format("{} is {}, expected a number", name, value->dump()));
    return value->as_double();
  }

  // Whether they are interleaved is the family's, whatever the file says: transformers does not read that
  // key.
  ops::RotarySections sections() const {
    ops::RotarySections found = *sections_;
    if (const Json* interleaved = find(kInterleaved);
        interleaved != nullptr && *interleaved != Json(found.interleaved))
      reader_.refuse(key_, fmt::format("{} is {}, expected {}: this family has its sections {}", kInterleaved,
                                       interleaved->dump(), found.interleaved,
                                       found.interleaved ? "interleaved" : "in blocks"));
    const Json* pairs = find(kSections);
    if (pairs == nullptr) return found;
    const auto is_count = [](const Json& each) {
      return each.is_int() && each.as_int() >= 0 && each.as_int() <= kMostPairs;
    };
    if (!pairs->is_array() || pairs->as_array().size() != 3 ||
        !std::ranges::all_of(pairs->as_array(), is_count))
      reader_.refuse(key_, fmt::format("{} is {}, expected three whole numbers of 0 or more: the pairs of a "
                                       "head that time, height and width turn",
                                       kSections, pairs->dump()));
    for (size_t i = 0; i < 3; ++i) found.pairs[i] = static_cast<int32_t>(pairs->as_array()[i].as_int());
    return found;
  }

  // A value at the top level takes precedence over the one in rope_scaling.
  int64_t original_positions(RopeType type, int64_t max_positions) const {
    constexpr const char* kKey = "original_max_position_embeddings";
    auto original = static_cast<double>(max_positions);
    if (type == RopeType::kLlama3 || type == RopeType::kYarn)
      original = reader_.number(kKey, number(kKey).value_or(original));
    if (!(original >= 1 && original <= static_cast<double>(int64_t{1} << 31)))
      reader_.refuse(key_, fmt::format("{} is {}, expected 1 to {}", kKey, original, int64_t{1} << 31));
    return static_cast<int64_t>(original);
  }

  void check_keys(RopeType type) {
    std::vector<std::string> known = rope_keys(type);
    known.insert(known.end(), {"rope_type", "type", "rope_theta"});
    for (const auto& [name, value] : rope_.as_object()) {
      if (std::find(known.begin(), known.end(), name) != known.end()) continue;
      if (partial_ && name == kPartial) continue;
      if (sections_ && (name == kSections || name == kInterleaved)) continue;
      const bool partial = name == kPartial && !value.is_null() && value != Json(1) && value != Json(1.0);
      // Parameters of each type of layer: {"full_attention": {...}, ...}.
      if (partial || value.is_object())
        reader_.refuse(key_, fmt::format("has {} = {}, which is not supported", name, value.dump()));
      reader_.add_unused(key_ + "." + name);
    }
  }

  void check(const RopeConfig& rope) const {
    if (!(rope.theta > 0))
      reader_.refuse(key_, fmt::format("rope_theta is {}, expected a positive number", rope.theta));
    if (!(rope.factor > 0))
      reader_.refuse(key_, fmt::format("factor is {}, expected a positive number", rope.factor));
    if (rope.type != RopeType::kDefault && rope.type != RopeType::kYarn && find("factor") == nullptr)
      reader_.refuse(key_, "factor is missing");
    if (rope.type == RopeType::kLlama3 && !(rope.low_freq_factor > 0 && rope.high_freq_factor > 0))
      reader_.refuse(key_, "low_freq_factor and high_freq_factor must be positive");
    if (rope.type == RopeType::kLlama3 && rope.high_freq_factor == rope.low_freq_factor)
      reader_.refuse(key_, "high_freq_factor must differ from low_freq_factor");
  }

  ConfigReader& reader_;
  std::string key_;
  const Json& rope_;
  bool partial_;
  std::optional<ops::RotarySections> sections_;
};

double read_theta(ConfigReader& reader, const char* key, double otherwise) {
  const double theta = reader.number(key, otherwise);
  if (!(theta > 0)) reader.refuse(key, fmt::format("is {}, expected a positive number", theta));
  return theta;
}

}  // namespace

layers::RopeConfig read_rope(ConfigReader& reader, double default_theta, int64_t max_positions,
                             const RopeKinds& kinds) {
  RopeConfig rope;
  rope.theta = read_theta(reader, "rope_theta", default_theta);
  if (kinds.partial)
    rope.partial_rotary_factor = reader.not_negative(kPartial, *kinds.partial);
  else
    reader.expect(kPartial, 1, "rotating a part of each head is not supported");
  rope.original_max_position_embeddings = max_positions;
  if (kinds.sections) rope.sections = *kinds.sections;
  std::optional<RopeConfig> found;
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const Json* value = reader.find(key);
    if (value == nullptr || (value->is_object() && value->as_object().empty())) continue;
    const RopeConfig read = RopeReader(reader, key, *value, kinds).read(rope, max_positions);
    if (found && read != *found)
      reader.refuse("rope_scaling", "and rope_parameters are both given and differ; keep one of them");
    if (!found) found = read;
  }
  return found.value_or(rope);
}

void check_sections(ConfigReader& reader, RopeConfig& rope, int64_t head_dim) {
  const int64_t pairs = layers::rotated_width(rope, head_dim) / 2;
  if (rope.sections.sum() == pairs) return;
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const Json* value = reader.find(key);
    const Json* given = value != nullptr && value->is_object() ? value->find(kSections) : nullptr;
    if (given != nullptr && !given->is_null())
      reader.refuse(key, fmt::format("{} is {}, whose sum is {}, expected {}: half of what is rotated of a "
                                     "head of {}",
                                     kSections, given->dump(), rope.sections.sum(), pairs, head_dim));
  }
  rope.sections = {};
}

RopesByType read_ropes_by_type(ConfigReader& reader, double full_theta, double sliding_theta,
                               int64_t max_positions) {
  RopesByType ropes;
  ropes.full.theta = read_theta(reader, "rope_theta", full_theta);
  ropes.sliding.theta = read_theta(reader, "rope_local_base_freq", sliding_theta);
  for (RopeConfig* rope : {&ropes.full, &ropes.sliding})
    rope->original_max_position_embeddings = max_positions;
  const auto read = [&](const std::string& key, const Json* value, RopeConfig& rope) {
    if (value != nullptr && !value->is_null())
      rope = RopeReader(reader, key, *value, {}).read(rope, max_positions);
  };
  const Json *by_type = reader.find("rope_parameters"), *scaling = reader.find("rope_scaling");
  if (by_type != nullptr && scaling != nullptr)
    reader.refuse("rope_scaling", "and rope_parameters are both given; keep one of them");
  read("rope_scaling", scaling, ropes.full);
  if (by_type == nullptr) return ropes;
  if (!by_type->is_object())
    reader.refuse("rope_parameters", fmt::format("is {}, expected an object", by_type->kind_name()));
  for (const auto& [type, value] : by_type->as_object()) {
    const std::string key = "rope_parameters." + type;
    if (type == "full_attention")
      read(key, &value, ropes.full);
    else if (type == "sliding_attention")
      read(key, &value, ropes.sliding);
    else
      reader.refuse("rope_parameters", fmt::format("has {}; use full_attention and sliding_attention", type));
  }
  return ropes;
}

}  // namespace temper::models
