#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>

#include "base/console.h"
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/threads/threads.h"
#include "cli/arguments/adapters.h"
#include "cli/arguments/program.h"
#include "cli/arguments/sampling.h"
#include "cli/arguments/streamed_answer.h"
#include "rollout/text_model.h"

namespace temper::cli {
namespace {

struct GenerateArguments {
  std::string model, prompt_file, system;
  std::optional<std::string> prompt;
  std::vector<std::string> adapters;
  bool raw = false, quiet = false;
  SamplingArguments sampling;
};

// What is given, or what a pipe brings, without the last line's end.
std::string given_prompt(const GenerateArguments& arguments) {
  if (arguments.prompt && !arguments.prompt_file.empty())
    fail("[generate] give one of --prompt and --prompt-file, not both");
  if (arguments.prompt) return *arguments.prompt;
  if (!arguments.prompt_file.empty()) return read_stream(arguments.prompt_file);
  std::string piped;
  if (isatty(STDIN_FILENO) == 0) piped.assign(std::istreambuf_iterator<char>(std::cin), {});
  if (piped.empty()) fail("[generate] there is no prompt; give --prompt or --prompt-file, or pipe it in");
  if (piped.ends_with('\n')) piped.pop_back();
  return piped;
}

std::string rendered(const std::string& prompt, const GenerateArguments& arguments,
                     const rollout::TextFiles& text) {
  if (arguments.raw || !text.chat) return prompt;
  Json::Array messages;
  if (!arguments.system.empty())
    messages.push_back(Json::Object{{"role", "system"}, {"content", arguments.system}});
  messages.push_back(Json::Object{{"role", "user"}, {"content", prompt}});
  return text.chat_prompt(messages);
}

int generate(const GenerateArguments& arguments) {
  Adapters::check(arguments.model, arguments.adapters);
  const std::string prompt = given_prompt(arguments);
  const auto model = load_for_inference(arguments.model, arguments.sampling);
  const Adapters adapters(*model, arguments.adapters);
  const auto text = rollout::TextFiles::load(arguments.model, model->decoder.config().vocab_size);
  rollout::Request request = arguments.sampling.apply(text.generation);
  const bool plain = arguments.raw || !text.chat;
  request.prompt = text.encode_prompt(rendered(prompt, arguments, text), plain);
  rollout::Engine engine(model->decoder, rollout::options_of_conversation(), &text.tokenizer);
  for (const Adapters::Named& each : adapters.all()) {
    if (adapters.all().size() > 1) print_line("[{}]", each.name);
    const StreamedAnswer answer = stream_answer(engine, each.apply(request));
    if (!arguments.quiet) log_info(describe(answer));
  }
  return 0;
}

}  // namespace

void add_generate(Program& program) {
  program.add("generate", "Continue a prompt with a model.", [](Options& options) {
    auto arguments = std::make_shared<GenerateArguments>();
    options.positional("model", arguments->model, "The model's folder, in Hugging Face format.");
    options.option("--adapter", arguments->adapters, Adapters::kHelp);
    options.example("temper generate models/Qwen3-0.6B -p \"Name a river.\" -t 0.7");
    options.option("-p,--prompt", arguments->prompt, "The prompt. Omitted: what a pipe brings.");
    options.option("--prompt-file", arguments->prompt_file, "A file that holds the prompt.");
    options.option("--system", arguments->system, "A system message for the chat template.");
    options.flag("--raw", arguments->raw, "Do not apply the model's chat template.");
    options.flag("-q,--quiet", arguments->quiet, "Print no line about speed at the end.");
    arguments->sampling.declare(options);
    return [arguments] { return generate(*arguments); };
  });
}

}  // namespace temper::cli
