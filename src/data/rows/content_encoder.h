#pragma once
#include <optional>
#include <string_view>
#include <vector>

#include "data/rows/row.h"

namespace temper::data {

// Makes examples of what a row says: of a conversation, a text, or a prompt and its completion. Made for one
// row; what it is given must outlive it.
class ContentEncoder {
 public:
  ContentEncoder(const Tokenizer& tokenizer, const ChatRenderer& render, const RowOptions& options)
      : tokenizer_(tokenizer), render_(render), options_(options) {}

  // Fails where the model has no chat template.
  void check_renderer() const;
  // The text of a conversation, as a prompt with what begins the answer; none for other contents. `variables`
  // are the template's. Fails where the template leaves out a message of an unknown role.
  std::optional<RenderedChat> text_of(const Content& content, const Json& variables, bool as_prompt) const;
  // `text` is what text_of returned; of a prompt alone no token is a target.
  std::vector<Example> examples_of(const Content& content, const Json& variables,
                                   std::optional<RenderedChat> text, bool prompt_only) const;
  // With the tokenizer's special tokens where a template has not written them.
  Example encode_prompt(std::string_view text, bool add_special_tokens) const;

 private:
  std::vector<Example> encode_chat(const Content& content, const Json& variables, RenderedChat text) const;
  Example encode_text(std::string_view text, size_t target_begin) const;
  void check_single(std::string_view why) const;

  const Tokenizer& tokenizer_;
  const ChatRenderer& render_;
  const RowOptions& options_;
};

}  // namespace temper::data
