// Tags in their order: <think>…</think><answer>…</answer>.
#include <set>

#include "base/error.h"
#include "base/parts/registry.h"
#include "rewards/immediate.h"
#include "rewards/judged_text.h"
#include "rewards/room.h"

namespace temper::rewards {
namespace {

void check_format(const RewardConfig& config, const std::string& key) {
  if (config.format.tags.empty()) fail("[{}.tags] is missing; write for example [think, answer]", key);
  std::set<std::string> seen;
  for (const std::string& tag : config.format.tags) {
    if (!is_tag_name(tag))
      fail("[{}.tags] '{}' is not a tag; write its name without angle brackets, for example think", key, tag);
    if (!seen.insert(tag).second) fail("[{}.tags] has '{}' twice; an answer has each tag once", key, tag);
  }
}

bool is_blank(std::string_view text) { return text.find_first_not_of(" \t\r\n") == std::string_view::npos; }

size_t count(std::string_view text, std::string_view part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + part.size()))
    ++found;
  return found;
}

bool is_formatted(std::string_view text, const std::vector<std::string>& tags, bool only_tags) {
  size_t at = 0;
  for (const std::string& tag : tags) {
    const std::string opening = fmt::format("<{}>", tag), closing = fmt::format("</{}>", tag);
    if (count(text, opening) != 1 || count(text, closing) != 1) return false;
    const size_t begin = text.find(opening), end = text.find(closing);
    if (begin < at || end < begin + opening.size()) return false;
    if (only_tags && !is_blank(text.substr(at, begin - at))) return false;
    at = end + closing.size();
  }
  return !only_tags || is_blank(text.substr(at));
}

std::unique_ptr<Reward> make(const RewardConfig& config, const std::string&) {
  return immediate([config](const Sample& sample) -> Verdict {
    const std::string opened =
        config.format.opened_by_prompt.value_or(false) ? fmt::format("<{}>", config.format.tags.front()) : "";
    const bool right =
        is_formatted(opened + sample.text, config.format.tags, config.format.only_tags.value_or(false));
    return {.reward = right ? 1.0 : 0.0};
  });
}

}  // namespace

void register_format() {
  registry<Room>().add("format", {{"tags", "only_tags", "opened_by_prompt"}, check_format, make});
}

}  // namespace temper::rewards
