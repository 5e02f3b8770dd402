#include "data/sources/test_support.h"

#include "base/error.h"

namespace temper::data {
namespace {

std::string content_of(const Json& message) {
  const Json* content = field_of(message, "content");
  return content ? content->as_string() : "";
}

std::string calls_of(const Json& message, bool first_on_new_line) {
  std::string out;
  const Json* calls = field_of(message, "tool_calls");
  if (!calls) return out;
  for (const Json& call : calls->as_array()) {
    if (first_on_new_line || !out.empty()) out += "\n";
    out += "<tool_call>\n" + call.at("function").dump() + "\n</tool_call>";
  }
  return out;
}

std::string tools_of(const Json& extra) {
  const Json* tools = extra.find("tools");
  return tools ? "<|im_start|>system\ntools: " + tools->dump() + "<|im_end|>\n" : "";
}

// Content behind the thinking, and the thinking.
std::pair<std::string, std::string> split_thinking(const std::string& content) {
  const size_t end = content.find("</think>");
  if (end == std::string::npos) return {content, ""};
  std::string thinking = content.substr(0, end);
  thinking = thinking.substr(thinking.find("<think>") + 7);
  return {std::string(trim(content.substr(end + 8))), std::string(trim(thinking))};
}

void write(RenderedChat& out, size_t message, const std::string& text) {
  out.written.push_back({{out.text.size(), out.text.size() + text.size()}, {message}});
  out.text += text;
}

RenderedChat render_chatml(const Json& messages, bool prompt, const Json& extra, bool marked) {
  RenderedChat out{tools_of(extra), {}};
  for (size_t i = 0; i < messages.as_array().size(); ++i) {
    const Json& message = messages.as_array()[i];
    const std::string& role = message.at("role").as_string();
    if (!is_known_role(role)) continue;
    out.text += "<|im_start|>" + role + "\n";
    const size_t begin = out.text.size();
    write(out, i, content_of(message) + calls_of(message, !content_of(message).empty()));
    out.text += "<|im_end|>\n";
    if (marked && role == "assistant") out.generation_spans.push_back({begin, out.text.size()});
  }
  if (prompt) out.text += "<|im_start|>assistant\n";
  return out;
}

RenderedChat render_thinking(const Json& chat, bool prompt, const Json& extra) {
  const Json::Array& messages = chat.as_array();
  RenderedChat out{tools_of(extra), {}};
  size_t last_query = 0;
  for (size_t i = 0; i < messages.size(); ++i)
    if (messages[i].at("role") == Json("user")) last_query = i;
  for (size_t i = 0; i < messages.size(); ++i) {
    out.text += "<|im_start|>" + messages[i].at("role").as_string() + "\n";
    auto [content, thinking] = split_thinking(content_of(messages[i]));
    if (messages[i].at("role") == Json("assistant") && i > last_query &&
        (i + 1 == messages.size() || !thinking.empty())) {
      out.text += "<think>\n";
      if (!thinking.empty()) write(out, i, thinking);
      out.text += "\n</think>\n\n";
    }
    write(out, i, content + calls_of(messages[i], !content.empty()));
    out.text += "<|im_end|>\n";
  }
  if (prompt) out.text += "<|im_start|>assistant\n";
  return out;
}

}  // namespace

const Tokenizer& qwen() {
  static const Tokenizer tokenizer = Tokenizer::load(TEMPER_SOURCE_DIR "/tests/goldens/tokenizer_qwen");
  return tokenizer;
}

ChatRenderer chatml() {
  return [](const Json& messages, bool prompt, const Json& extra) {
    return render_chatml(messages, prompt, extra, false);
  };
}

ChatRenderer chatml_marked() {
  return [](const Json& messages, bool prompt, const Json& extra) {
    return render_chatml(messages, prompt, extra, true);
  };
}

ChatRenderer chatml_thinking() { return render_thinking; }

std::string write_lines(const TemporaryDirectory& folder, const std::string& name,
                        const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  write_file(folder / name, text);
  return folder / name;
}

Mixture mixture_of(const std::vector<std::string>& files, const RowOptions& options, ChatRenderer render) {
  Member member;
  member.name = "rows";
  member.source = std::make_shared<Source>(files);
  member.encoder = std::make_shared<RowEncoder>(qwen(), std::move(render), options);
  return Mixture({std::move(member)});
}

std::vector<std::string> target_runs(const Example& example) {
  std::vector<std::string> runs;
  for (size_t i = 0; i < example.ids.size(); ++i) {
    if (!example.loss_mask[i]) continue;
    if (i == 0 || !example.loss_mask[i - 1]) runs.emplace_back();
    runs.back() += qwen().token_bytes(example.ids[i]);
  }
  return runs;
}

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace temper::data
