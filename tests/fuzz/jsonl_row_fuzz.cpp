// The input is a byte that chooses the options and one line of a JSONL file. The row is made tokens and a
// loss mask.
#include <cstdint>

#include "base/error.h"
#include "data/chat/chat_template.h"
#include "data/rows/row.h"
#include "tokenizers/text/byte_level.h"

namespace temper::data {
namespace {

const Tokenizer& tokenizer() {
  static const Tokenizer kTokenizer = [] {
    Json::Object vocab;
    for (int byte = 0; byte < 256; ++byte)
      vocab.emplace_back(tokenizers::spelling_of_bytes(std::string(1, static_cast<char>(byte))), byte);
    Json::Array added;
    for (const char* token : {"<|im_start|>", "<|im_end|>", "<|endoftext|>"})
      added.emplace_back(
          Json::Object{{"id", 256 + static_cast<int>(added.size())}, {"content", token}, {"special", true}});
    const Json byte_level =
        Json::Object{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
    const Json file =
        Json::Object{{"added_tokens", added},
                     {"pre_tokenizer", byte_level},
                     {"decoder", byte_level},
                     {"model", Json::Object{{"type", "BPE"}, {"vocab", vocab}, {"merges", Json::Array{}}}}};
    return Tokenizer::from_json(file.dump(), "base");
  }();
  return kTokenizer;
}

constexpr std::string_view kMarked = R"({%- if tools %}{{ tools | tojson }}{% endif -%}
{%- for m in messages -%}
{{- '<|im_start|>' + m.role + '\n' -}}
{%- if m.role == 'assistant' -%}{% generation %}{{ (m.content or '') + '<|im_end|>' }}{% endgeneration %}{{ '\n' }}
{%- else %}{{ (m.content or '') + '<|im_end|>\n' }}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif -%})";

constexpr std::string_view kPlain = R"({%- for m in messages -%}
{{- '<|im_start|>' + m.role + '\n' + (m.content or '') | trim -}}
{%- for c in m.tool_calls or [] %}{{ '\n<tool_call>' + c.function.name ~ c.function.arguments ~ '</tool_call>' }}{% endfor -%}
{{- '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif -%})";

const ChatRenderer& renderer(bool marked) {
  const auto make = [](std::string_view source) {
    return renderer_of(std::make_shared<const templates::ChatTemplate>(
        templates::ChatTemplate{templates::Template::parse(source, "chat"), Json::Object()}));
  };
  static const ChatRenderer kRenderers[] = {make(kPlain), make(kMarked)};
  return kRenderers[marked];
}

RowOptions options_of(uint8_t bits) {
  RowOptions options;
  if (bits & 2) options.loss = LossOn::kAll;
  if (bits & 4) options.max_length = 16;
  constexpr Overflow kOverflows[] = {Overflow::kTruncate, Overflow::kDrop, Overflow::kError,
                                     Overflow::kSplit};
  options.overflow = kOverflows[bits >> 3 & 3];
  if (bits & 32) options.eos_id = 258;
  if (bits & 64) options.goal = Goal::kAny;
  options.learn_chosen = true;
  if (!(bits & 128)) return options;
  options.labels = {"bad", "good"};
  options.columns = {{"messages", "dialog"}, {"role", "speaker"}, {"content", "text"}};
  return options;
}

void check(const EncodedRow& row, const RowOptions& options) {
  invariant(row.examples.empty() == (row.status != RowStatus::kKept), "only kept rows have examples");
  invariant(row.num_tokens() + row.tokens_cut == row.full_length || row.status != RowStatus::kKept,
            "tokens were lost");
  for (const Example& example : row.examples) {
    invariant(example.ids.size() == example.loss_mask.size(), "there is not one mask bit for each id");
    invariant(options.max_length == 0 || example.size() <= options.max_length,
              "a row is longer than max_length");
    invariant(example.num_targets() > 0 || row.format == RowFormat::kPromptOnly, "a kept row has no targets");
  }
}

void try_row(uint8_t bits, std::string_view line) {
  const RowOptions options = options_of(bits);
  try {
    const RowEncoder encoder(tokenizer(), renderer(bits & 1), options);
    check(encoder.encode(Json::parse(line, "row")), options);
  } catch (const Error& error) {
    invariant(error.kind() == ErrorKind::kInput, error.what());
  }
}

}  // namespace
}  // namespace temper::data

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  temper::data::try_row(data[0], {reinterpret_cast<const char*>(data) + 1, size - 1});
  return 0;
}
