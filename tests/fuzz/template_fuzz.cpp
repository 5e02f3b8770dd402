// The input is a chat template. It is parsed and rendered with fixed dialogues under small limits.
#include <cstdint>

#include "base/error.h"
#include "templates/template.h"

namespace temper::templates {
namespace {

constexpr std::string_view kDialogues[] = {
    R"({"messages": [{"role": "user", "content": "Hi <b>"}], "add_generation_prompt": true, "bos_token": "<s>"})",
    R"({"messages": [{"role": "system", "content": " Zoë\n"}, {"role": "user", "content": [{"type": "text", "text": "é😀"}]},
        {"role": "assistant", "content": null, "reasoning_content": "so\n", "tool_calls": [{"id": "c1", "type": "function",
          "function": {"name": "add", "arguments": {"items": [1, 2.5, null, true], "k": "v"}}}]},
        {"role": "tool", "content": "{\"t\": 21}"}],
        "tools": [{"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties":
          {"items": {"type": "array", "items": {"type": "number"}}}, "required": ["items"]}}}],
        "add_generation_prompt": false, "enable_thinking": true, "eos_token": "</s>", "n": 7, "f": 0.5})"};

const std::vector<Json>& dialogues() {
  static const std::vector<Json> kParsed = [] {
    std::vector<Json> parsed;
    for (const std::string_view text : kDialogues) parsed.push_back(Json::parse(text, "dialogue"));
    return parsed;
  }();
  return kParsed;
}

void check(const Rendered& rendered) {
  size_t at = 0;
  for (const auto& [begin, end] : rendered.generation) {
    invariant(begin <= end && end <= rendered.text.size(), "a generation span lies outside of the text");
    invariant(begin >= at, "generation spans are not in order");
    at = begin;
  }
}

void try_template(std::string_view source) {
  const Limits limits{.steps = 10'000, .bytes = 2 << 20, .text = 1 << 16, .items = 1 << 12, .seconds = 60};
  try {
    const Template parsed = Template::parse(source, "input");
    for (const Json& dialogue : dialogues()) check(parsed.render_with_generation(dialogue, limits));
  } catch (const Error& error) {
    invariant(error.kind() == ErrorKind::kInput, error.what());
  }
}

}  // namespace
}  // namespace temper::templates

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  temper::templates::try_template({reinterpret_cast<const char*>(data), size});
  return 0;
}
