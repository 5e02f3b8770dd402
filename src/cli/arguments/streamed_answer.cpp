#include "cli/arguments/streamed_answer.h"

#include "base/clock.h"
#include "base/console.h"
#include "base/error.h"

namespace temper::cli {

StreamedAnswer stream_answer(rollout::Engine& engine, rollout::Request request,
                             const std::function<bool()>& keep_going) {
  StreamedAnswer answer;
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  request.skip_special_tokens = true;
  request.log_prob_temperature = 0;
  const double start = seconds_now();
  const int64_t id = engine.add(std::move(request));
  size_t printed = 0;
  try {
    while (engine.step()) {
      for (const rollout::Engine::NewToken& token : engine.new_tokens()) {
        if (answer.prompt_seconds == 0) answer.prompt_seconds = seconds_now() - start;
        print_answer(token.text);
        printed += token.text.size();
      }
      if (keep_going && !keep_going()) engine.cancel(id);
    }
  } catch (...) {  // the next request must not find this one
    engine.give_up();
    throw;
  }
  answer.answer_seconds = seconds_now() - start - answer.prompt_seconds;
  answer.completion = std::move(engine.take_finished().front());
  answer.prompt_tokens = prompt - answer.completion.cached_tokens;
  if (answer.completion.finish == rollout::Finish::kFailed) fail("{}", answer.completion.error);
  print_answer(answer.completion.text.substr(printed) + "\n");
  return answer;
}

namespace {

// Of tokens behind the first, which the prompt's pass chose. Empty: there are too few of them to say.
std::string rate_of(const StreamedAnswer& answer) {
  constexpr int64_t kFewest = 8;
  const int64_t passes = std::ssize(answer.completion.ids) - 1;
  if (passes < kFewest || answer.answer_seconds <= 0) return "";
  return fmt::format(" at {:.1f} tokens/s", static_cast<double>(passes) / answer.answer_seconds);
}

}  // namespace

std::string describe(const StreamedAnswer& answer) {
  const rollout::Finish finish = answer.completion.finish;
  std::string why;
  if (finish == rollout::Finish::kLength) why = "; stopped at --max-new-tokens";
  if (finish == rollout::Finish::kContext) why = "; stopped at the end of the model's context";
  return fmt::format("{} prompt tokens in {:.2f}s, {} new tokens{}{}", answer.prompt_tokens,
                     answer.prompt_seconds,
                     std::ssize(answer.completion.ids) - (finish == rollout::Finish::kStopToken ? 1 : 0),
                     rate_of(answer), why);
}

}  // namespace temper::cli
