#pragma once
#include <string>

#include "base/json/json.h"
#include "tokenizers/splitting/pre_tokenizer.h"

namespace temper::tokenizers {

enum class PrependScheme { kAlways, kFirst, kNever };

// What Metaspace means as a pre-tokenizer and as a decoder.
struct MetaspaceOptions {
  std::string replacement;  // one character
  PrependScheme prepend = PrependScheme::kAlways;
  bool split = true;
  static MetaspaceOptions from_json(const Json& component, const std::string& place);
};

// Writes spaces as the replacement, puts one before pieces without, and cuts before each.
class Metaspace : public PreTokenizerStep {
 public:
  explicit Metaspace(MetaspaceOptions options) : options_(std::move(options)) {}
  void run(Pieces& pieces, bool aligned) const override;
  bool asks_for_start() const override { return options_.prepend == PrependScheme::kFirst; }

 private:
  void rewrite(std::string_view piece, bool prepends, TextRewriter& out) const;
  bool prepends(const Pieces& pieces, ByteSpan span) const;
  void cut(const std::string& text, ByteSpan span, std::vector<ByteSpan>& out) const;
  MetaspaceOptions options_;
};

}  // namespace temper::tokenizers
