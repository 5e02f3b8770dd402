#include <algorithm>
#include <cctype>
#include <cstdio>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "base/signals/stop_signals.h"
#include "cli/arguments/adapters.h"
#include "cli/arguments/line_reader.h"
#include "cli/arguments/program.h"
#include "cli/arguments/sampling.h"
#include "cli/arguments/streamed_answer.h"
#include "rollout/text_model.h"

namespace temper::cli {
namespace {

struct ChatArguments {
  std::string model, system;
  std::vector<std::string> adapters;
  bool stats = false;
  SamplingArguments sampling;
};

class Conversation {
 public:
  Conversation(const models::Model& model, const rollout::TextFiles& text, const SamplingArguments& sampling,
               const std::string& system)
      : text_(text),
        request_(sampling.apply(text.generation)),
        system_(system),
        engine_(model.decoder, rollout::options_of_conversation(), &text.tokenizer) {
    clear();
  }

  // What answers from now on; the conversation continues.
  void use(const Adapters::Named& adapter) { adapter_ = &adapter; }

  void clear() {
    messages_.clear();
    if (!system_.empty()) messages_.push_back(Json::Object{{"role", "system"}, {"content", system_}});
  }

  // After an error the conversation is what it was before the message.
  StreamedAnswer say(const std::string& line) {
    const Json::Array before = messages_;
    try {
      return answer(line);
    } catch (const Error&) {
      messages_ = before;
      throw;
    }
  }

 private:
  StreamedAnswer answer(const std::string& line) {
    messages_.push_back(Json::Object{{"role", "user"}, {"content", line}});
    rollout::Request request = adapter_->apply(request_);
    request.prompt = text_.encode_prompt(text_.chat_prompt(messages_), false);
    // Ctrl-C ends the answer, not the conversation.
    const StopSignals signals;
    StreamedAnswer said = stream_answer(engine_, std::move(request), [&] { return !signals.requested(); });
    messages_.push_back(Json::Object{{"role", "assistant"}, {"content", said.completion.text}});
    return said;
  }

  const rollout::TextFiles& text_;
  rollout::Request request_;
  const Adapters::Named* adapter_ = nullptr;
  std::string system_;
  rollout::Engine engine_;
  Json::Array messages_;
};

// "/adapter NAME" switches; "/adapter" lists.
void choose_adapter(const std::string& line, const Adapters& adapters, Conversation& conversation) {
  const size_t space = line.find(' ');
  if (space == std::string::npos) return log_info("adapters: " + adapters.names());
  const std::string name = line.substr(space + 1);
  conversation.use(adapters.find(name));
  log_info("answers come from " + (name == Adapters::kNone ? "the model alone" : name));
}

constexpr const char* kChatHelp =
    "Type a message. Ctrl-C stops an answer; /clear starts again; /adapter NAME\n"
    "chooses who answers; /help shows this; /quit or Ctrl-D leaves.";

// Whether the line is a command, which is done then: a slash and one word of letters ("/etc/hosts" is none).
bool obey(const std::string& line, const Adapters& adapters, Conversation& conversation) {
  const std::string word = line.substr(0, line.find(' '));
  if (word.size() < 2 || word[0] != '/' ||
      !std::all_of(word.begin() + 1, word.end(), [](unsigned char c) { return std::isalpha(c); }))
    return false;
  if (word == "/adapter")
    choose_adapter(line, adapters, conversation);
  else if (line == "/clear")
    conversation.clear();
  else if (line == "/help")
    log_info(kChatHelp);
  else
    fail("unknown command '{}'; there are /adapter, /clear, /help, /quit", line);
  return true;
}

int chat(const ChatArguments& arguments) {
  Adapters::check(arguments.model, arguments.adapters);
  const auto model = load_for_inference(arguments.model, arguments.sampling);
  const Adapters adapters(*model, arguments.adapters);
  const auto text = rollout::TextFiles::load(arguments.model, model->decoder.config().vocab_size);
  if (!text.chat) text.chat_prompt({});  // says what is missing
  Conversation conversation(*model, text, arguments.sampling, arguments.system);
  conversation.use(adapters.all().front());
  LineReader lines;
  if (lines.is_terminal()) log_info(kChatHelp);
  if (!lines.missing().empty()) log_info(lines.missing());
  while (const std::optional<std::string> line = lines.read("> ")) {
    if (*line == "/exit" || *line == "/quit") break;
    if (line->empty()) continue;
    try {
      if (obey(*line, adapters, conversation)) continue;
      const StreamedAnswer result = conversation.say(*line);
      if (arguments.stats) log_info(describe(result));
    } catch (const Error& error) {
      // Someone who types can continue, for example with /clear when the context is full.
      if (!lines.is_terminal()) throw;
      log_warning(error.what());
    }
  }
  if (lines.is_terminal()) std::fputs("\n", stdout);
  return 0;
}

}  // namespace

void add_chat(Program& program) {
  program.add("chat", "Talk with a model; messages come from standard input.", [](Options& options) {
    auto arguments = std::make_shared<ChatArguments>();
    options.positional("model", arguments->model, "The model's folder, in Hugging Face format.");
    options.option("--adapter", arguments->adapters, Adapters::kHelp);
    options.example("temper chat models/Qwen3-0.6B --adapter runs/law/adapter");
    options.option("--system", arguments->system, "A system message.");
    options.flag("--stats", arguments->stats, "Print a line about speed after each answer.");
    arguments->sampling.declare(options);
    return [arguments] { return chat(*arguments); };
  });
}

}  // namespace temper::cli
