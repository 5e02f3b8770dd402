#include "checkpoints/files/names.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/text.h"

namespace temper::checkpoints {
namespace {

constexpr size_t kMaxCompared = 2000;

std::string digits_of(std::string_view name) {
  std::string digits;
  for (const char c : name)
    if (c >= '0' && c <= '9')
      digits += c;
    else if (!digits.empty() && digits.back() != '.')
      digits += '.';
  return digits;
}

}  // namespace

bool is_plain_name(std::string_view name) {
  if (name.empty() || name == "." || name == "..") return false;
  return std::none_of(name.begin(), name.end(),
                      [](char c) { return c == '/' || c == '\\' || static_cast<unsigned char>(c) < 0x20; });
}

std::string nearest_tensor(std::string_view name, const std::vector<std::string>& candidates) {
  const std::string digits = digits_of(name);
  std::vector<std::string> alike, others;
  for (const std::string& candidate : candidates) {
    if (candidate.size() > 2 * name.size() + 64) continue;
    std::vector<std::string>& group = digits_of(candidate) == digits ? alike : others;
    if (group.size() < kMaxCompared) group.push_back(candidate);
  }
  const std::string shown(name.substr(0, 256));
  const std::string best = nearest_name(shown, alike);
  return best.empty() ? nearest_name(shown, others) : best;
}

}  // namespace temper::checkpoints
