#pragma once
#include <optional>
#include <string>
#include <vector>

#include "data/rows/row.h"

namespace temper::data {

// Whether the text of a row of this format may speak of pictures; next to other texts they are metadata.
bool may_name_pictures(const Json& row, RowFormat format);

// The pictures of one row, from its fields to its tokens. What it is given must outlive it.
class PictureEncoder {
 public:
  PictureEncoder(const PictureTokens& tokens, const Tokenizer& tokenizer)
      : tokens_(tokens), tokenizer_(tokenizer) {}

  // Fails where the tokenizer has other tokens than the model.
  void check_tokens() const;
  std::string pad() const { return std::string(tokenizer_.token_bytes(tokens_.pad)); }

  // Reads the headers of the pictures that the row names and returns the row with marks instead. Errors name
  // the picture's place in the row.
  Json take(const Json& row, const std::string& folder);
  bool empty() const { return pictures_.empty(); }

  // Checks that each content has a mark for each picture, and writes the tokens of pictures into those that
  // no chat template writes.
  void write(std::vector<Content>& contents) const;

  // Puts as many pads as the picture has tokens where the example has one. Neither pads nor what stands
  // around them are targets. An example has the first of the row's pictures, at most all of them; an Error
  // where it has more pads.
  void expand(Example& example) const;

 private:
  void write_text(Content& content) const;

  const PictureTokens& tokens_;
  const Tokenizer& tokenizer_;
  std::vector<PlacedPicture> pictures_;  // in the order of the text; without places
};

}  // namespace temper::data
