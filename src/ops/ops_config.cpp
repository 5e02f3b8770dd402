#include "ops/ops_config.h"

#include <charconv>
#include <optional>

#include "ops/kernel.h"

namespace temper::ops {
namespace {

std::string_view take_segment(std::string_view& path) {
  const size_t dot = path.find('.');
  const std::string_view segment = path.substr(0, dot);
  path.remove_prefix(dot == std::string_view::npos ? path.size() : dot + 1);
  return segment;
}

std::optional<int64_t> number_of(std::string_view text) {
  int64_t value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  return !text.empty() && result.ec == std::errc() && result.ptr == text.data() + text.size()
             ? std::optional(value)
             : std::nullopt;
}

bool segment_matches(std::string_view pattern, std::string_view segment) {
  if (pattern == "*" || pattern == segment) return true;
  const size_t dash = pattern.find('-');
  if (dash == std::string_view::npos) return false;
  const auto first = number_of(pattern.substr(0, dash)), last = number_of(pattern.substr(dash + 1)),
             found = number_of(segment);
  return first && last && found && *first <= *found && *found <= *last;
}

}  // namespace

OpsConfig all_eager(FieldValues written) {
  return {.written = std::move(written),
          .fallback = std::string(kEager),
          .without_fallback = {"attn", "decode_attention", "latent_decode", "paged_attention"}};
}

bool module_matches(std::string_view pattern, std::string_view module) {
  while (!pattern.empty() && !module.empty()) {
    if (pattern == "*") return true;
    if (!segment_matches(take_segment(pattern), take_segment(module))) return false;
  }
  return pattern.empty() && module.empty();
}

}  // namespace temper::ops
