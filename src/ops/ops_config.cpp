#include "ops/ops_config.h"

#include <optional>

#include "base/numbers.h"
#include "ops/kernel.h"

namespace temper::ops {
namespace {

std::string_view take_segment(std::string_view& path) {
  const size_t dot = path.find('.');
  const std::string_view segment = path.substr(0, dot);
  path.remove_prefix(dot == std::string_view::npos ? path.size() : dot + 1);
  return segment;
}

bool segment_matches(std::string_view pattern, std::string_view segment) {
  if (pattern == "*" || pattern == segment) return true;
  const size_t dash = pattern.find('-');
  if (dash == std::string_view::npos) return false;
  const auto first = parse_integer_of<int64_t>(pattern.substr(0, dash)),
             last = parse_integer_of<int64_t>(pattern.substr(dash + 1)),
             found = parse_integer_of<int64_t>(segment);
  return first && last && found && *first <= *found && *found <= *last;
}

}  // namespace

OpsConfig all_eager(FieldValues written) {
  return {.written = std::move(written),
          .fallback = std::string(kEager),
          .without_fallback = {"attn", "latent_decode", "paged_attention"}};
}

bool module_matches(std::string_view pattern, std::string_view module) {
  while (!pattern.empty() && !module.empty()) {
    if (pattern == "*") return true;
    if (!segment_matches(take_segment(pattern), take_segment(module))) return false;
  }
  return pattern.empty() && module.empty();
}

}  // namespace temper::ops
