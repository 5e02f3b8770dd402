#pragma once
#include <optional>

#include "data/rows/row.h"

// What rows say and their texts do not.
namespace temper::data {

// A content of a row and the text that was made of it.
struct SaidText {
  const Content& content;
  const Json& row;                          // with our names of its columns
  const Json& variables;                    // of the chat template
  const std::optional<RenderedChat>& text;  // of a conversation
  bool as_prompt = false;
};

// Adds what is lost of the content, and the unused fields.
void add_losses(EncodedRow& row, const SaidText& said, const RowOptions& options, const ChatRenderer& render);

}  // namespace temper::data
