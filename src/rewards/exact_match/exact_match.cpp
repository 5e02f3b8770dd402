// The text is what the row calls right.
#include <utf8proc.h>

#include <cstdlib>

#include "base/error.h"
#include "base/parts/registry.h"
#include "base/utf8.h"
#include "rewards/immediate.h"
#include "rewards/judged_text.h"
#include "rewards/right_answer.h"
#include "rewards/room.h"

namespace temper::rewards {
namespace {

// Composed, so that é is one character however it was written; with `fold` as Unicode folds cases.
std::string comparable(std::string_view text, bool fold) {
  const std::string_view inner = trimmed(text);
  const int options = UTF8PROC_STABLE | UTF8PROC_COMPOSE | (fold ? UTF8PROC_CASEFOLD : 0);
  utf8proc_uint8_t* mapped = nullptr;
  const utf8proc_ssize_t size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(inner.data()),
                                             static_cast<utf8proc_ssize_t>(inner.size()), &mapped,
                                             static_cast<utf8proc_option_t>(options));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owned(mapped, &std::free);
  invariant(size >= 0, "a text that is valid UTF-8 can be composed");
  return {reinterpret_cast<const char*>(mapped), static_cast<size_t>(size)};
}

std::unique_ptr<Reward> make(const RewardConfig& config, const std::string&) {
  return immediate([config](const Sample& sample) -> Verdict {
    const RightAnswers right = right_answers(config, *sample.row);
    if (!right.error.empty()) return {.error = right.error};
    const std::optional<std::string> text = judged_text(config, sample.text);
    if (!text) return {};
    const bool fold = config.text.ignore_case.value_or(false);
    const std::string found = comparable(*text, fold);
    for (const std::string& answer : right.texts)
      if (comparable(replace_invalid_utf8(answer), fold) == found) return {.reward = 1};
    return {};
  });
}

}  // namespace

void register_exact_match() {
  registry<Room>().add("exact_match", {{"answer", "within", "ignore_case"}, check_within, make});
}

}  // namespace temper::rewards
