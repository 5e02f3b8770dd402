#include "cli/arguments/streamed_answer.h"

#include "base/console.h"
#include "rollout/requests/answer_text.h"

namespace temper::cli {
StreamedAnswer stream_answer(rollout::Generator& generator, const tokenizers::Tokenizer& tokenizer,
                             const std::vector<int32_t>& prompt, rollout::GenerateOptions options,
                             const std::vector<std::string>& stop_strings,
                             const std::function<bool()>& keep_going) {
  rollout::AnswerText text(tokenizer, stop_strings, true);
  for (const int32_t id : rollout::stop_tokens(stop_strings, tokenizer)) options.stop_ids.push_back(id);
  rollout::Generation generation = generator.generate(prompt, options, [&](int32_t id) {
    print_answer(text.push(id));
    return !text.stopped() && (!keep_going || keep_going());
  });
  print_answer(text.finish() + "\n");
  return {std::move(generation), text.text()};
}

}  // namespace temper::cli
