#include "exchange/rounding.h"

#include <cmath>

#include "base/error.h"

namespace temper::exchange {
namespace {

std::string describe(const quantizers::PlannedQuantizer& each) {
  std::string text = fmt::format("{} by {}", each.formats(), each.groups());
  if (each.format.needs_amax()) text += each.keeps_amax() ? ", calibrated" : ", found in each pass";
  if (each.count > 1) text += fmt::format(", of each of {} experts", each.count);
  if (each.scales_columns()) text += ", with factors of columns";
  return text;
}

}  // namespace

Rounding rounding_of(const quantizers::Quantizers* quantizers) {
  Rounding rounding;
  if (quantizers == nullptr) return rounding;
  for (const quantizers::PlannedQuantizer& each : quantizers->plan().quantizers)
    if (each.of_input) rounding.emplace(each.name, describe(each));
  return rounding;
}

Json to_json(const Rounding& rounding) {
  Json::Object all;
  for (const auto& [name, how] : rounding) all.emplace_back(name, how);
  return all;
}

Rounding rounding_from(const Json& json) {
  Rounding rounding;
  for (const auto& [name, how] : json.as_object()) rounding.emplace(name, how.as_string());
  return rounding;
}

void check_same(const Rounding& sent, const Rounding& own) {
  if (sent == own) return;
  if (own.empty())
    fail(
        "[weights] the sender rounds values that pass ({} quantizers, {}: {}), the receiver does not; "
        "start it with --quantize RUN.yaml, the configuration of the run that sends",
        sent.size(), sent.begin()->first, sent.begin()->second);
  if (sent.empty())
    fail(
        "[weights] the receiver rounds values that pass ({} quantizers, {}: {}), the sender does not; "
        "start it without --quantize, or send from the run that quantizes",
        own.size(), own.begin()->first, own.begin()->second);
  const auto refuse = [](const std::string& name, const std::string& there, const std::string& here) {
    fail(
        "[weights] {} rounds otherwise: the sender has {}, the receiver {}; give --quantize the "
        "configuration of the run that sends",
        name, there, here);
  };
  for (const auto& [name, how] : sent) {
    const auto found = own.find(name);
    const std::string here = found == own.end() ? "none" : found->second;
    if (here != how) refuse(name, how, here);
  }
  for (const auto& [name, how] : own)
    if (!sent.contains(name)) refuse(name, "none", how);
}

std::vector<quantizers::NamedScales> scales_of(const quantizers::Quantizers* quantizers) {
  std::vector<quantizers::NamedScales> all;
  if (quantizers == nullptr) return all;
  for (quantizers::NamedScales& each : quantizers->state())
    if (each.of_input) all.push_back(std::move(each));
  return all;
}

void check_scales(const std::string& name, const Tensor& values) {
  const Tensor here = values.on({}, MemoryTag::kWorkspace).contiguous(MemoryTag::kWorkspace);
  for (const float value : here.values<float>())
    if (!std::isfinite(value) || (value < 0 && !name.ends_with("._low")) ||
        (value == 0 && name.ends_with("._pre_quant_scale")))
      fail("[weights] '{}' has {}, which no calibration finds", name, value);
}

}  // namespace temper::exchange
