// One JSON value a line: blank lines, a byte order mark, CRLF and a last line without an end are fine.
#include <cstring>

#include "base/error.h"
#include "formats/format.h"

namespace temper::formats {
namespace {

size_t line_end(std::string_view text, size_t begin) {
  const void* found = std::memchr(text.data() + begin, '\n', text.size() - begin);
  return found ? static_cast<size_t>(static_cast<const char*>(found) - text.data()) : text.size();
}

bool blank(std::string_view line) { return line.find_first_not_of(" \t\r") == std::string_view::npos; }

class JsonlFile : public RowFile {
 public:
  explicit JsonlFile(const OpenedFile& file) : RowFile(file) {
    const std::string_view all = text_.all();
    for (size_t begin = all.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0; begin < all.size();) {
      const size_t end = line_end(all, begin);
      if (!blank(all.substr(begin, end - begin))) begins_.push_back(begin);
      begin = end + 1;
      text_.pass(end);
    }
    text_.finish();
    begins_.shrink_to_fit();
  }

  std::string_view text(int64_t row) const override {
    const std::string_view all = text_.all();
    const size_t first = begin(row);
    std::string_view line = all.substr(first, line_end(all, first) - first);
    while (line.ends_with('\r')) line.remove_suffix(1);
    return line;
  }

  std::string place(int64_t row) const override {
    return has_lines_ ? fmt::format("{}:{}", name_, text_.line(begin(row)))
                      : fmt::format("{}: row {}", name_, row + 1);
  }
};

std::unique_ptr<RowFile> open(const OpenedFile& file) { return std::make_unique<JsonlFile>(file); }

}  // namespace

void register_jsonl() {
  registry<RowFormat>().add("jsonl", {[](std::string_view, std::string_view) { return true; }, open});
}

}  // namespace temper::formats
