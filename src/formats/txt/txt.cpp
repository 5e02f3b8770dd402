// A file of plain text is one row, {"text": …}.
#include "base/error.h"
#include "base/text.h"
#include "formats/endings.h"
#include "formats/format.h"

namespace temper::formats {
namespace {

// A row is made tokens at once, which takes some fifty times its bytes.
constexpr size_t kMostBytes = size_t{64} << 20;

class TextFile : public RowFile {
 public:
  explicit TextFile(const OpenedFile& file) : RowFile(file) {
    text_.finish();
    if (content().size() > kMostBytes)
      fail("[{}] has {}, and a text file is one row of at most {}; cut it into several files, or write JSONL",
           name_, format_bytes(bytes()), format_bytes(int64_t{kMostBytes}));
    if (content().find_first_not_of(" \t\r\n") != std::string_view::npos) begins_.push_back(start());
  }

  std::string_view text(int64_t row) const override { return text_.all().substr(begin(row)); }
  std::string place(int64_t) const override { return name_; }

  Json parse(int64_t row) const override {
    const std::string_view content = text(row);
    if (const size_t valid = valid_utf8_prefix(content); valid < content.size())
      fail("[{}:{}:{}] not UTF-8; write the file as UTF-8", name_, text_.line(start() + valid),
           text_.column(start() + valid));
    return Json::Object{{"text", content}};
  }

 private:
  size_t start() const { return text_.all().starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0; }
  std::string_view content() const { return text_.all().substr(start()); }
};

bool recognizes(std::string_view text, std::string_view name) {
  return ending_of(name) == ".txt" && !begins_as_json(text);
}

std::unique_ptr<RowFile> open(const OpenedFile& file) { return std::make_unique<TextFile>(file); }

}  // namespace

void register_txt() { registry<RowFormat>().add("txt", {recognizes, open}); }

}  // namespace temper::formats
