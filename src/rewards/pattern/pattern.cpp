// A regular expression, in PCRE2's syntax, that the text must match.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/error.h"
#include "base/parts/registry.h"
#include "rewards/immediate.h"
#include "rewards/judged_text.h"
#include "rewards/room.h"

namespace temper::rewards {
namespace {

// What one answer may cost: about a second, and memory that no answer of a model needs. An expression that
// goes back and forth over a text ends there, not after a day.
constexpr uint32_t kSteps = 20'000'000, kHeapKiB = 256 << 10;

PCRE2_SPTR units(const std::string& text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

std::string error_text(int code) {
  PCRE2_UCHAR buffer[256];
  pcre2_get_error_message(code, buffer, sizeof buffer);
  return reinterpret_cast<const char*>(buffer);
}

class Expression {
 public:
  Expression(const RewardConfig& config, const std::string& key) : pattern_(*config.text.pattern) {
    uint32_t options = PCRE2_UTF | PCRE2_UCP;
    if (config.text.ignore_case.value_or(false)) options |= PCRE2_CASELESS;
    if (config.text.full.value_or(false)) options |= PCRE2_ANCHORED | PCRE2_ENDANCHORED;
    int error = 0;
    PCRE2_SIZE offset = 0;
    code_.reset(pcre2_compile(units(pattern_), pattern_.size(), options, &error, &offset, nullptr));
    if (!code_)
      fail("[{}.pattern] '{}' is not a regular expression: {}, at character {}", key, pattern_,
           error_text(error), offset + 1);
    data_.reset(pcre2_match_data_create(1, nullptr));
    context_.reset(pcre2_match_context_create(nullptr));
    pcre2_set_match_limit(context_.get(), kSteps);
    pcre2_set_heap_limit(context_.get(), kHeapKiB);
  }

  Verdict judge(const std::string& text) const {
    const int found = pcre2_match(code_.get(), units(text), text.size(), 0, 0, data_.get(), context_.get());
    if (found == PCRE2_ERROR_NOMATCH) return {};
    if (found >= 0) return {.reward = 1};
    return {.error = fmt::format("pattern '{}' could not be matched with a text of {} bytes: {}", pattern_,
                                 text.size(), error_text(found))};
  }

 private:
  template <auto Free>
  struct Deleter {
    template <class T>
    void operator()(T* handle) const {
      Free(handle);
    }
  };
  std::string pattern_;
  std::unique_ptr<pcre2_code, Deleter<pcre2_code_free>> code_;
  std::unique_ptr<pcre2_match_data, Deleter<pcre2_match_data_free>> data_;
  std::unique_ptr<pcre2_match_context, Deleter<pcre2_match_context_free>> context_;
};

void check_pattern(const RewardConfig& config, const std::string& key) {
  check_within(config, key);
  if (!config.text.pattern) fail("[{}.pattern] is missing; type pattern needs a regular expression", key);
  const Expression expression(config, key);
}

std::unique_ptr<Reward> make(const RewardConfig& config, const std::string& key) {
  const auto expression = std::make_shared<const Expression>(config, key);
  return immediate([config, expression](const Sample& sample) -> Verdict {
    const std::optional<std::string> text = judged_text(config, sample.text);
    return text ? expression->judge(*text) : Verdict{};
  });
}

}  // namespace

void register_pattern() {
  registry<Room>().add("pattern", {{"pattern", "within", "full", "ignore_case"}, check_pattern, make});
}

}  // namespace temper::rewards
