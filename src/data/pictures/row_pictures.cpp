#include "data/pictures/row_pictures.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "data/chat/fields.h"
#include "data/chat/picture_parts.h"

namespace temper::data {
namespace {

constexpr std::string_view kMark = "<image>";
constexpr std::array<std::string_view, 2> kLists = {"images", "image"};
// In the order in which a row's text is made of them; the answers of preferences stand behind them.
constexpr std::array<std::string_view, 12> kFields = {"system", "messages",    "conversations", "history",
                                                      "prompt", "instruction", "input",         "question",
                                                      "text",   "completion",  "output",        "answer"};
constexpr std::array<const char*, 3> kInner = {"content", "value", "text"};

bool is_picture(const Json& part) {
  const Json* const type = field_of(part, "type");
  return type && (*type == Json("image") || *type == Json("image_url"));
}

bool holds_nothing(const Json& value) {
  return value == Json("") || value == Json(Json::Array{}) || value == Json(Json::Object{});
}

// A place of the text at which a picture stands.
struct Mark {
  std::string place;
  const Json* source = nullptr;  // null: the next one of the row's list
  bool in_text = false;          // "<image>"
};

// The source of a part, and the key that has it; bytes and paths may be the part's own fields.
const Json* source_of(const Json& part, std::string& place) {
  for (const char* key : {"image", "image_url", "url"})
    if (const Json* source = field_of(part, key)) {
      place += fmt::format(".{}", key);
      return source;
    }
  const bool own = field_of(part, "path") || field_of(part, "bytes") || field_of(part, "base64");
  return own ? &part : nullptr;
}

class Marks {
 public:
  // A text, a message, or a list of messages or parts.
  void read(const Json& value, const std::string& place) {
    if (value.is_string()) return read_text(value.as_string(), place);
    if (value.is_array())
      for (size_t i = 0; i < value.as_array().size(); ++i)
        read(value.as_array()[i], fmt::format("{}[{}]", place, i));
    if (value.is_object()) read_object(value, place);
  }
  std::vector<Mark> take() {
    // Where parts name the list's pictures, "<image>" in a text is text.
    const bool parts = std::any_of(marks_.begin(), marks_.end(),
                                   [](const Mark& mark) { return mark.source == nullptr && !mark.in_text; });
    if (parts) std::erase_if(marks_, [](const Mark& mark) { return mark.in_text; });
    return std::move(marks_);
  }

 private:
  void read_text(std::string_view text, const std::string& place) {
    for (size_t at = text.find(kMark); at != std::string_view::npos; at = text.find(kMark, at + kMark.size()))
      marks_.push_back({place, nullptr, true});
  }
  void read_object(const Json& value, const std::string& place) {
    const Json* const type = field_of(value, "type");
    if (is_picture(value)) {
      Mark mark{place};
      mark.source = source_of(value, mark.place);
      marks_.push_back(std::move(mark));
      return;
    }
    for (const char* kind : {"video", "audio", "video_url", "input_audio"})
      if (type && *type == Json(kind))
        fail("{} is of type {}, which is not read: only text and pictures are", place, kind);
    for (const char* key : kInner)
      if (const Json* inner = field_of(value, key)) read(*inner, fmt::format("{}.{}", place, key));
  }

  std::vector<Mark> marks_;
};

// Whether the answer's messages begin with those of the prompt.
bool holds_prompt(const Json& answer, const Json& prompt) {
  if (!answer.is_array() || !prompt.is_array() || answer.as_array().size() < prompt.as_array().size())
    return false;
  return std::equal(prompt.as_array().begin(), prompt.as_array().end(), answer.as_array().begin());
}

// `answer`: which one of a preference.
std::vector<Mark> marks_of(const Json& row, std::string_view answer) {
  Marks marks;
  const Json *chosen = field_of(row, answer), *prompt = field_of(row, "prompt");
  for (const std::string_view field : kFields) {
    const Json* const value = field_of(row, field);
    if (value == nullptr || (field == "prompt" && chosen && holds_prompt(*chosen, *prompt))) continue;
    marks.read(*value, std::string(field));
  }
  if (chosen) marks.read(*chosen, std::string(answer));
  return marks.take();
}

struct PictureList {
  std::string field;
  std::vector<const Json*> pictures;
};

PictureList list_of(const Json& row) {
  PictureList list;
  for (const std::string_view field : kLists) {
    const Json* const value = field_of(row, field);
    if (value == nullptr || holds_nothing(*value)) continue;
    if (!list.field.empty()) fail("the row has images and image, expected one of them");
    list.field = field;
    if (!value->is_array()) {
      list.pictures.push_back(value);
      continue;
    }
    for (const Json& one : value->as_array()) list.pictures.push_back(&one);
  }
  return list;
}

std::string place_in(const PictureList& list, size_t index, const Json& row) {
  return row.at(list.field).is_array() ? fmt::format("{}[{}]", list.field, index) : list.field;
}

[[noreturn]] void fail_count(const PictureList& list, size_t named) {
  fail(
      "the number of pictures in {} is {}, and the text names {}; write <image> where each of them belongs, "
      "or remove those "
      "that are too many",
      list.field, list.pictures.size(), named);
}

std::vector<MediaReference> resolve(std::vector<Mark> marks, const PictureList& list, const Json& row) {
  if (list.field.empty()) std::erase_if(marks, [](const Mark& mark) { return mark.in_text; });
  std::vector<MediaReference> pictures;
  size_t taken = 0;
  for (const Mark& mark : marks) {
    if (mark.source != nullptr) {
      pictures.push_back(media_reference(*mark.source, mark.place));
      continue;
    }
    if (list.field.empty())
      fail("{} is a picture without a source, and the row has no field images", mark.place);
    if (taken < list.pictures.size())
      pictures.push_back(media_reference(*list.pictures[taken], place_in(list, taken, row)));
    ++taken;
  }
  if (taken != list.pictures.size()) fail_count(list, taken);
  return pictures;
}

// Puts marks where parts are pictures, and where texts name some.
class MarkWriter {
 public:
  explicit MarkWriter(bool in_texts) : in_texts_(in_texts) {}

  void write(Json& value) const {
    if (value.is_string() && in_texts_) value = marked(value.as_string());
    if (value.is_array())
      for (Json& item : value.as_array()) write(item);
    if (value.is_object() && is_picture(value))
      value = Json::Object{{"type", "text"}, {"text", std::string(1, kPictureMark)}};
    else if (value.is_object())
      for (auto& [name, inner] : value.as_object())
        if (std::find(kInner.begin(), kInner.end(), name) != kInner.end()) write(inner);
  }

 private:
  static std::string marked(std::string text) {
    for (size_t at = text.find(kMark); at != std::string::npos; at = text.find(kMark, at + 1))
      text.replace(at, kMark.size(), 1, kPictureMark);
    return text;
  }

  bool in_texts_;
};

bool same_content(const MediaReference& a, const MediaReference& b) {
  return a.path == b.path && a.bytes == b.bytes;
}

}  // namespace

bool names_pictures(const Json& row) {
  for (const std::string_view field : kLists)
    if (const Json* value = field_of(row, field); value && !holds_nothing(*value)) return true;
  const std::vector<Mark> marks = marks_of(row, "chosen");
  return std::any_of(marks.begin(), marks.end(), [](const Mark& mark) { return !mark.in_text; });
}

std::vector<MediaReference> pictures_of_row(const Json& row) {
  for (const char* field : {"videos", "video", "audios", "audio"})
    if (const Json* value = field_of(row, field); value && !holds_nothing(*value))
      fail("has {}, which is not read: only text and pictures are", field);
  const PictureList list = list_of(row);
  std::vector<MediaReference> pictures = resolve(marks_of(row, "chosen"), list, row);
  if (!field_of(row, "rejected")) return pictures;
  const std::vector<MediaReference> others = resolve(marks_of(row, "rejected"), list, row);
  if (!std::equal(pictures.begin(), pictures.end(), others.begin(), others.end(), same_content))
    fail("chosen and rejected name different pictures; expected two answers to one prompt");
  return pictures;
}

Json row_with_marks(Json row) {
  bool in_texts = !list_of(row).field.empty();
  for (const char* answer : {"chosen", "rejected"}) {
    const std::vector<Mark> marks = marks_of(row, answer);
    in_texts = in_texts && std::none_of(marks.begin(), marks.end(), [](const Mark& mark) {
                 return mark.source == nullptr && !mark.in_text;
               });
  }
  const MarkWriter writer(in_texts);
  for (auto& [name, value] : row.as_object())
    if (std::find(kFields.begin(), kFields.end(), name) != kFields.end() || name == "chosen" ||
        name == "rejected")
      writer.write(value);
  std::erase_if(row.as_object(), [](const auto& field) {
    return std::find(kLists.begin(), kLists.end(), field.first) != kLists.end();
  });
  return row;
}

}  // namespace temper::data
