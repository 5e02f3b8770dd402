#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "templates/values/value.h"

// Texts that remember which message and field their bytes came from. What templates do most (joining,
// trimming, splitting, slicing, replacing) keeps this to the byte; other changes of a message's text count as
// that message's in full.
namespace temper::templates {

class TracedText {
 public:
  void add(std::string_view text);
  void print(const Value& value);  // as Python's str() prints it
  void add(const TracedText& other) { add(other.text_, other.origins_, 0); }
  void add_part(const Value& whole, std::string_view part);  // a part of the memory of whole.text()
  void mark(size_t begin, std::optional<Source> source);  // from `begin` to the end, where nothing is known

  size_t size() const { return text_.size(); }
  std::string& text() { return text_; }
  Origins& origins() { return origins_; }
  Value take(bool markup = false);

 private:
  void add(std::string_view text, const Origins& origins, size_t offset);

  std::string text_;
  Origins origins_;
};

Value part_of(const Value& whole,
              std::string_view part);                 // in the memory of whole.text(); markup like the whole
std::optional<Source> source_of(const Value& value);  // the message of the first traced text in it
std::optional<Source> source_at(const Value& text, size_t byte);

}  // namespace temper::templates
