#include "rollout/passes/op_trace.h"

#include <bit>
#include <cmath>

#include "base/error.h"

namespace temper::rollout {
namespace {

// What ops do that compute the same from keys and values, windows or states that they have kept, or with what
// adapters add for some of the tokens.
std::string_view role_of(std::string_view op) {
  if (op == "paged_attention" || op == "latent_decode") return "attention";
  if (op == "causal_conv1d_update") return "causal_conv1d";
  if (op == "recurrent_gated_delta_rule") return "chunk_gated_delta_rule";
  if (op == "lora_linear") return "linear";
  if (op == "lora_moe_experts") return "moe_experts";
  return op;
}

uint32_t bits_of(float value) {
  if (value == 0) return 0;
  return std::isnan(value) ? 0x7fc00000u : std::bit_cast<uint32_t>(value);
}

// Two lanes, as a multiplication waits for the one before.
uint64_t hash_of(std::span<const float> row) {
  constexpr uint64_t kFactor = 0x9e3779b97f4a7c15u;
  uint64_t lanes[2] = {kFactor, ~kFactor};
  for (size_t i = 0; i < row.size(); ++i) {
    uint64_t& lane = lanes[i & 1];
    lane = (lane ^ bits_of(row[i])) * kFactor;
    lane ^= lane >> 29;
  }
  return lanes[0] + std::rotl(lanes[1], 17) * kFactor;
}

std::string without_suffix(const std::string& name, std::string_view suffix) {
  return name.ends_with(suffix) ? name.substr(0, name.size() - suffix.size()) : name;
}

std::string module_around(const std::string& place) {
  const size_t dot = place.rfind('.');
  return dot == std::string::npos ? place : place.substr(0, dot);
}

}  // namespace

OpTrace::OpTrace(const layers::Decoder& model, const std::set<const layers::Adapter*>& adapters) {
  const layers::ParameterStore& parameters = model.parameters();
  add_names(parameters, {});
  for (const layers::Adapter* const adapter : adapters) {
    if (adapter == nullptr) continue;
    // A copy has the name of what it is a copy of, which other tokens of the pass may read.
    std::map<std::string, std::string> copies;
    for (const LoraSaved& saved : adapter->plan().saved)
      if (const WeightSpec* const spec = parameters.table().find_source(saved.source).spec; spec != nullptr)
        copies[saved_name(saved.source)] = spec->name;
    add_names(adapter->parameters(), copies);
  }
}

void OpTrace::add_names(const layers::ParameterStore& parameters,
                        const std::map<std::string, std::string>& others) {
  const std::vector<WeightSpec>& specs = parameters.table().specs();
  for (size_t i = 0; i < specs.size(); ++i) {
    const auto other = others.find(specs[i].name);
    names_.emplace(parameters[i].value.raw(),
                   without_suffix(other == others.end() ? specs[i].name : other->second, ".weight"));
  }
}

void OpTrace::computed(std::string_view op, const Tensor& weight, const Tensor& result) {
  const auto named = weight.defined() ? names_.find(weight.raw()) : names_.end();
  if (named != names_.end()) place_ = named->second;
  OpResult out{std::string(op), named != names_.end() ? place_ : module_around(place_), place_, 0, {}};
  const int64_t each = ops::OpListener::rows_of_a_token(),
                rows = result.ndim() == 0 || result.dim(0) % each != 0 ? 0 : result.dim(0) / each;
  if (rows > 0) {
    out.width = result.numel() / rows;
    const Tensor floats = result.on({}).to(DType::kF32).contiguous();
    const auto values = floats.values<float>();
    for (int64_t row = 0; row < rows; ++row)
      out.rows.push_back(
          hash_of(values.subspan(static_cast<size_t>(row * out.width), static_cast<size_t>(out.width))));
  }
  results_.push_back(std::move(out));
}

std::vector<OpResult> OpTrace::take(int64_t tokens) {
  std::vector<OpResult> whole;
  std::map<std::string, size_t> last;  // by place and role, the newest result
  std::map<std::string, int> count;
  for (OpResult& each : results_) {
    const std::string key = fmt::format("{} {}", each.key, role_of(each.op));
    const auto before = last.find(key);
    if (before != last.end() && each.width == whole[before->second].width &&
        std::ssize(whole[before->second].rows) + std::ssize(each.rows) <= tokens) {
      auto& rows = whole[before->second].rows;
      rows.insert(rows.end(), each.rows.begin(), each.rows.end());
      continue;
    }
    each.key = fmt::format("{} {}", key, count[key]++);
    last[key] = whole.size();
    whole.push_back(std::move(each));
  }
  results_.clear();
  place_.clear();
  for (OpResult& each : whole)
    if (std::ssize(each.rows) != tokens) each.rows.clear();
  return whole;
}

}  // namespace temper::rollout
