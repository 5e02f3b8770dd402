// The number that an answer arrives at.
#include "base/error.h"
#include "base/parts/registry.h"
#include "rewards/immediate.h"
#include "rewards/judged_text.h"
#include "rewards/number/read_number.h"
#include "rewards/right_answer.h"
#include "rewards/room.h"

namespace temper::rewards {
namespace {

// Of an answer to be judged: what cannot be read is wrong.
std::optional<Number> found_number(const std::string& text) {
  const GivenResult given = given_result(text);
  if (given.unfinished) return std::nullopt;
  return given.text ? whole_number(*given.text) : last_number(text);
}

// Of the right answer: no guess where it gives none.
std::optional<Number> right_number(const std::string& text) {
  const GivenResult given = given_result(text);
  return whole_number(given.text.value_or(text));
}

Verdict judge(const RewardConfig& config, const Rational& tolerance, const Sample& sample) {
  const RightAnswers right = right_answers(config, *sample.row);
  if (!right.error.empty()) return {.error = right.error};
  std::vector<Number> numbers;
  for (const std::string& text : right.texts) {
    const std::optional<Number> number = right_number(text);
    if (!number)
      return {.error = fmt::format("the row's answer '{}' is not a number that reward number understands "
                                   "(docs/rewards.md)",
                                   text)};
    numbers.push_back(*number);
  }
  const std::optional<std::string> text = judged_text(config, sample.text);
  const std::optional<Number> found = text ? found_number(*text) : std::nullopt;
  if (!found) return {};
  for (const Number& number : numbers)
    if (same_number(*found, number, tolerance)) return {.reward = 1};
  return {};
}

std::unique_ptr<Reward> make(const RewardConfig& config, const std::string&) {
  // The shortest digits that read back equal are what the user wrote.
  const std::optional<Number> tolerance = whole_number(format_double(config.text.tolerance.value_or(0)));
  invariant(tolerance.has_value(), "a tolerance is a number");
  return immediate([config, tolerance = tolerance->value](const Sample& sample) {
    return judge(config, tolerance, sample);
  });
}

}  // namespace

void register_number() {
  registry<Room>().add("number", {{"answer", "within", "tolerance"}, check_within, make});
}

}  // namespace temper::rewards
