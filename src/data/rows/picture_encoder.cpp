#include "data/rows/picture_encoder.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "data/chat/picture_parts.h"
#include "data/pictures/row_pictures.h"

namespace temper::data {

bool may_name_pictures(const Json& row, RowFormat format) {
  if (format == RowFormat::kTokens || format == RowFormat::kClassification) return false;
  if (format != RowFormat::kText) return true;
  const Json* const text = field_of(row, "text");
  return text && text->is_string() && text->as_string().find("<image>") != std::string::npos;
}

void PictureEncoder::check_tokens() const {
  for (const auto& [key, id] :
       {std::pair("image_token_id", tokens_.pad), std::pair("vision_start_token_id", tokens_.start),
        std::pair("vision_end_token_id", tokens_.end)}) {
    const std::string text(id < tokenizer_.vocab_size() ? tokenizer_.token_bytes(id) : "");
    if (text.empty() || tokenizer_.encode(text) != std::vector<int32_t>{id})
      fail(
          "[config.json] {} is {}, which in the tokenizer is {}; expected a token that its text becomes; the "
          "files of tokenizer and model belong to different models",
          key, id, text.empty() ? "no token" : fmt::format("'{}'", text));
  }
}

Json PictureEncoder::take(const Json& row, const std::string& folder) {
  for (MediaReference& reference : pictures_of_row(row)) {
    PlacedPicture picture;
    picture.shape = tokens_.shape(reference, folder);
    picture.file = std::make_shared<const PictureFile>(PictureFile{std::move(reference), folder});
    pictures_.push_back(std::move(picture));
  }
  return row_with_marks(row);
}

void PictureEncoder::write(std::vector<Content>& contents) const {
  for (Content& content : contents) {
    const int64_t marks = content.chat ? count_marks(content.messages) : count_marks(content.text);
    if (marks != std::ssize(pictures_))
      fail(
          "the row names {} pictures, and {} of them are in the text that it is trained on; write them into "
          "its "
          "messages, its prompt or its completion",
          pictures_.size(), marks);
    if (!content.chat) write_text(content);
  }
}

void PictureEncoder::write_text(Content& content) const {
  std::string written;
  for (const int32_t id : {tokens_.start, tokens_.pad, tokens_.end}) written += tokenizer_.token_bytes(id);
  for (size_t at = content.text.find(kPictureMark); at != std::string::npos;
       at = content.text.find(kPictureMark, at)) {
    content.text.replace(at, 1, written);
    if (at < content.target_begin) content.target_begin += written.size() - 1;
  }
}

void PictureEncoder::expand(Example& example) const {
  const int64_t pads = std::count(example.ids.begin(), example.ids.end(), tokens_.pad);
  if (pads > std::ssize(pictures_))
    fail(
        "the text has the token {} (id {}) {} times and {} pictures; it is written for pictures alone: name "
        "them by "
        "<image> or parts {{\"type\": \"image\"}}, each once",
        pad(), tokens_.pad, pads, pictures_.size());
  const std::vector<int32_t> ids = std::exchange(example.ids, {});
  const std::vector<uint8_t> mask = std::exchange(example.loss_mask, {});
  for (size_t i = 0; i < ids.size(); ++i) {
    const bool around = ids[i] == tokens_.start || ids[i] == tokens_.end;
    size_t count = 1;
    if (ids[i] == tokens_.pad) {
      PlacedPicture picture = pictures_[example.pictures.size()];
      picture.first = example.size();
      count = static_cast<size_t>(picture.shape.tokens);
      example.pictures.push_back(std::move(picture));
    }
    example.ids.insert(example.ids.end(), count, ids[i]);
    example.loss_mask.insert(example.loss_mask.end(), count,
                             ids[i] == tokens_.pad || around ? uint8_t{0} : mask[i]);
  }
}

}  // namespace temper::data
