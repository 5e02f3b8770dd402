#include "tokenizers/text/normalizer_steps.h"

#include <utf8proc.h>

#include "base/utf8.h"
#include "tokenizers/text/component.h"
#include "tokenizers/text/replacement.h"
#include "tokenizers/unicode/characters.h"

namespace temper::tokenizers {
namespace {

// Puts a text before each that is not empty.
class Prepend : public NormalizerStep {
 public:
  explicit Prepend(std::string text) : text_(std::move(text)) {}
  AlignedText run(std::string_view text, bool aligned) const override {
    TextRewriter out(text, aligned);
    if (!text.empty()) out.replace(0, text_);
    return out.finish();
  }
  bool begins_texts() const override { return true; }

 private:
  std::string text_;
};

class Replace : public NormalizerStep {
 public:
  Replace(const Json& component, const std::string& place) : replacement_(component, place) {}
  AlignedText run(std::string_view text, bool aligned) const override {
    return replacement_.run(text, aligned);
  }

 private:
  Replacement replacement_;
};

// Letters that came after Unicode 15, whose tables utf8proc may have: the first and last of a row, and the
// first one's small letter.
struct LaterCase {
  char32_t first, last, small;
};
constexpr LaterCase kLaterCases[] = {{0x1C89, 0x1C89, 0x1C8A},    {0xA7CB, 0xA7CB, 0x264},
                                     {0xA7CC, 0xA7CC, 0xA7CD},    {0xA7CE, 0xA7CE, 0xA7CF},
                                     {0xA7D2, 0xA7D2, 0xA7D3},    {0xA7D4, 0xA7D4, 0xA7D5},
                                     {0xA7DA, 0xA7DA, 0xA7DB},    {0xA7DC, 0xA7DC, 0x19B},
                                     {0x10D50, 0x10D65, 0x10D70}, {0x16EA0, 0x16EB8, 0x16EBB}};

char32_t lower_of(char32_t c) {
  for (const LaterCase& row : kLaterCases)
    if (c >= row.first && c <= row.last) return row.small + (c - row.first);
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}

// Each character on its own, so that no sigma is final.
class Lowercase : public NormalizerStep {
 public:
  AlignedText run(std::string_view text, bool aligned) const override {
    TextRewriter out(text, aligned);
    size_t same = 0;
    while (out.rest().size() > same) {
      const Utf8Step step = next_utf8(out.rest().substr(same));
      std::string lower;
      append_utf8(lower, lower_of(step.value));
      if (step.value == 0x130) lower = "i\xCC\x87";  // the one that becomes two characters
      if (lower == out.rest().substr(same, step.size)) {
        same += step.size;
        continue;
      }
      out.keep(same);
      out.replace(step.size, lower);
      same = 0;
    }
    return out.finish();
  }
};

class Strip : public NormalizerStep {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  AlignedText run(std::string_view text, bool aligned) const override {
    size_t begin = 0, end = text.size();
    if (left_)
      while (begin < end && is_white_space(next_utf8(text.substr(begin)).value))
        begin += next_utf8(text.substr(begin)).size;
    if (right_)
      while (end > begin && is_white_space(next_utf8(last_utf8(text.substr(0, end))).value))
        end -= last_utf8(text.substr(0, end)).size();
    TextRewriter out(text, aligned);
    out.replace(begin, "");
    out.keep(end - begin);
    out.replace(text.size() - end, "");
    return out.finish();
  }

 private:
  bool left_, right_;
};

}  // namespace

std::unique_ptr<const NormalizerStep> make_prepend(const Json& component, const std::string& place) {
  return std::make_unique<Prepend>(as_text(required(component, "prepend", place), place + ".prepend"));
}

std::unique_ptr<const NormalizerStep> make_replace(const Json& component, const std::string& place) {
  return std::make_unique<Replace>(component, place);
}

std::unique_ptr<const NormalizerStep> make_lowercase(const Json&, const std::string&) {
  return std::make_unique<Lowercase>();
}

std::unique_ptr<const NormalizerStep> make_strip(const Json& component, const std::string& place) {
  return std::make_unique<Strip>(bool_option(component, "strip_left", false, place),
                                 bool_option(component, "strip_right", false, place));
}

}  // namespace temper::tokenizers
