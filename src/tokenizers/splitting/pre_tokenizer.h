#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json/json.h"
#include "tokenizers/splitting/segmenter.h"
#include "tokenizers/text/alignment.h"

namespace temper::tokenizers {

// A text cut into pieces, which lie in order in `text`; `alignments` leads to the text before.
struct Pieces {
  std::string text;
  Alignments alignments;
  std::vector<ByteSpan> spans;
  Segmenter::Start start;  // of the text before
  bool is_first(ByteSpan span) const {
    return start.is_start_of_text && start.is_start_of_text(alignments.source(span).begin);
  }
  bool is_continued(ByteSpan span) const { return start.continued && span.begin == 0; }
  std::string_view at(ByteSpan span) const {
    return std::string_view(text).substr(span.begin, span.end - span.begin);
  }
};

// One pre-tokenizer: cuts each piece, or rewrites them.
class PreTokenizerStep {
 public:
  virtual ~PreTokenizerStep() = default;
  virtual void run(Pieces& pieces, bool aligned) const = 0;
  virtual bool asks_for_start() const { return false; }
};

// The pre-tokenizers of a file without ByteLevel.
class PreTokenizer {
 public:
  static PreTokenizer from_json(const Json& json, std::string_view where);
  Pieces run(std::string_view text, const Segmenter::Start& start, bool aligned) const;
  bool asks_for_start() const;

 private:
  std::vector<std::unique_ptr<const PreTokenizerStep>> steps_;
};

bool has_byte_level(const Json& pre_tokenizer, std::string_view where);

}  // namespace temper::tokenizers
