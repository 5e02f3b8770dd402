#include "cli/arguments/foreign_options.h"

#include <algorithm>
#include <cctype>
#include <map>

#include "base/text.h"

namespace temper::cli {
namespace {

// Names that other programs for generation have, by ours.
const std::map<std::string, std::vector<std::string>> kForeign = {
    {"--max-new-tokens",
     {"--max-tokens", "--max-length", "--num-predict", "--n-predict", "--tokens", "--length",
      "--max-completion-tokens"}},
    {"--temperature", {"--temp", "--do-sample", "--sample"}},
    {"--repetition-penalty", {"--repeat-penalty", "--rep-penalty", "--rep-pen"}},
    {"--greedy", {"--no-sample", "--argmax"}},
    {"--adapter", {"--lora", "--lora-path", "--peft", "--adapter-path", "--lora-modules"}},
    {"--system", {"--system-prompt", "--sys"}},
    {"--prompt", {"--text", "--input", "--question"}},
    {"--prompt-file", {"--file", "--input-file"}},
    {"--raw", {"--no-chat-template", "--no-template", "--completion"}},
    {"--device", {"--gpu", "--cuda", "--device-map"}},
    {"--dtype", {"--torch-dtype", "--precision", "--bf16", "--fp16"}},
    {"--base-dtype", {"--quantization", "--load-in-8bit", "--load-in-4bit", "--quantize"}},
    {"--threads", {"--num-threads", "--n-threads"}},
    {"--base", {"--base-model", "--base-model-name-or-path", "--model"}},
    {"--seed", {"--random-seed"}},
};

}  // namespace

std::string meant_option(const std::string& given, const std::vector<std::string>& options) {
  std::string name = given.substr(0, given.find('='));
  for (char& c : name) c = c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const auto has = [](const std::vector<std::string>& names, const std::string& wanted) {
    return std::find(names.begin(), names.end(), wanted) != names.end();
  };
  if (has(options, name)) return name;
  for (const auto& [ours, theirs] : kForeign)
    if (has(options, ours) && has(theirs, name)) return ours;
  // Without the dashes, which all of them have.
  std::vector<std::string> names;
  for (const std::string& option : options) names.push_back(option.substr(2));
  const std::string nearest = nearest_name(name.substr(2), names);
  return nearest.empty() ? "" : "--" + nearest;
}

std::string other_command(const std::string& command, const std::string& option) {
  const bool many = option == "--out" || option == "--output" || option == "--samples";
  if (command != "generate" || !many) return "";
  return "'temper batch MODEL FILE.jsonl --out OUT.jsonl' answers all prompts of a file";
}

}  // namespace temper::cli
