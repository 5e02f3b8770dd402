#include "tokenizers/splitting/pre_tokenizer.h"

#include <algorithm>

#include "tokenizers/splitting/metaspace.h"
#include "tokenizers/splitting/split_kinds.h"
#include "tokenizers/text/component.h"

namespace temper::tokenizers {
namespace {

class SplitStep : public PreTokenizerStep {
 public:
  explicit SplitStep(Split split) : split_(std::move(split)) {}
  void run(Pieces& pieces, bool) const override {
    std::vector<ByteSpan> spans;
    for (const ByteSpan span : pieces.spans)
      split_.each(pieces.at(span), [&](std::string_view part) {
        const auto begin = static_cast<size_t>(part.data() - pieces.text.data());
        spans.push_back({begin, begin + part.size()});
      });
    pieces.spans.swap(spans);
  }

 private:
  Split split_;
};

}  // namespace

bool has_byte_level(const Json& pre_tokenizer, std::string_view where) {
  bool found = false;
  for_each_component(pre_tokenizer, "pretokenizers", where, [&](const Json& part, const std::string& place) {
    found |= component_type(part, place) == "ByteLevel";
  });
  return found;
}

PreTokenizer PreTokenizer::from_json(const Json& json, std::string_view where) {
  PreTokenizer result;
  for_each_component(json, "pretokenizers", where, [&](const Json& part, const std::string& place) {
    const std::string& type = component_type(part, place);
    if (type == "Metaspace")
      result.steps_.push_back(std::make_unique<Metaspace>(MetaspaceOptions::from_json(part, place)));
    else if (auto split = read_split(type, part, place))
      result.steps_.push_back(std::make_unique<SplitStep>(std::move(*split)));
    else
      refuse_component(
          place, type,
          "Metaspace, Split, Digits, Punctuation, Whitespace, WhitespaceSplit, ByteLevel, Sequence");
  });
  return result;
}

Pieces PreTokenizer::run(std::string_view text, const Segmenter::Start& start, bool aligned) const {
  Pieces pieces;
  pieces.text = text;
  pieces.start = start;
  if (!text.empty()) pieces.spans.push_back({0, text.size()});
  const bool traced = aligned || (steps_.size() > 1 && asks_for_start());
  for (const auto& step : steps_) step->run(pieces, traced);
  return pieces;
}

bool PreTokenizer::asks_for_start() const {
  return std::any_of(steps_.begin(), steps_.end(), [](const auto& step) { return step->asks_for_start(); });
}

}  // namespace temper::tokenizers
