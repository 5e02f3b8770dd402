// One array of objects; one object that holds one; or objects one after the other, over as many lines as they
// like.
#include "base/error.h"
#include "formats/format.h"
#include "formats/json/layout.h"

namespace temper::formats {
namespace {

class JsonFile : public RowFile {
 public:
  explicit JsonFile(const OpenedFile& file)
      : RowFile(file),
        scanner_(text_.all(), text_.all().starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0) {
    if (scanner_.peek() == '[')
      index_array();
    else
      index_objects();
    if (!scanner_.at_end())
      stop(
          "more text after the rows; expected one array of objects, one object with one, or one object a "
          "line");
    text_.finish();
    begins_.shrink_to_fit();
  }

  std::string_view text(int64_t row) const override {
    Scanner scanner(text_.all(), begin(row));
    scanner.skip_value();
    return text_.all().substr(begin(row), scanner.at() - begin(row));
  }

  std::string place(int64_t row) const override {
    return has_lines_ ? fmt::format("{}: row {} (line {})", name_, row + 1, text_.line(begin(row)))
                      : fmt::format("{}: row {}", name_, row + 1);
  }

 private:
  void index_array() {
    scanner_.take('[');
    if (scanner_.take(']')) return;
    do {
      if (scanner_.peek() != '{') stop(fmt::format("row {} is not an object", begins_.size() + 1));
      begins_.push_back(scanner_.at());
      skip_value();
    } while (scanner_.take(','));
    if (!scanner_.take(']')) stop(fmt::format("expected , or ] after row {}", begins_.size()));
  }

  // An object that holds the rows stands alone and has no messages; any other is a row.
  void index_objects() {
    const size_t object = scanner_.at();
    if (!index_members() || scanner_.peek() == '{') begins_ = {object};
    while (scanner_.peek() == '{') {
      begins_.push_back(scanner_.at());
      skip_value();
    }
  }

  // The rows of the list in this object; false when there is none.
  bool index_members() {
    std::string_view list, second;
    bool messages = false, row = false;
    scanner_.take('{');
    if (scanner_.take('}')) return false;
    do {
      const std::string_view name = key();
      row |= is_of_a_row(name);
      const List kind = list_at(text_.all(), scanner_.at());
      messages |= kind == List::kMessages;
      if (kind != List::kObjects) {
        skip_value();
        continue;
      }
      if (!list.empty()) {  // a row, if messages follow
        second = name;
        skip_value();
        continue;
      }
      list = name;
      index_array();
    } while (scanner_.take(','));
    if (!scanner_.take('}')) stop("expected , or } after the value");
    if (row) return false;
    if (!second.empty() && !messages && scanner_.peek() != '{')
      stop(fmt::format("{} and {} are lists of objects; expected one, with the rows", list, second));
    return !list.empty() && !messages;
  }

  std::string_view key() {
    if (scanner_.peek() != '"') stop("expected a key in double quotes");
    const size_t first = scanner_.at();
    if (!scanner_.skip_string()) stop(scanner_.problem());
    const std::string_view name = text_.all().substr(first, scanner_.at() - first);
    if (!scanner_.take(':')) stop(fmt::format("expected : after the key {}", name));
    scanner_.peek();
    return name;
  }

  void skip_value() {
    if (!scanner_.skip_value()) stop(scanner_.problem());
    text_.pass(scanner_.at());
  }

  [[noreturn]] void stop(std::string_view problem) {
    const size_t at = std::min(scanner_.at(), text_.all().size());
    text_.pass(at);  // a value may be longer than what was passed so far
    const std::string place =
        has_lines_ ? fmt::format("{}:{}:{}", name_, text_.line(at), text_.column(at)) : name_;
    fail("[{}] not valid JSON: {}", place, problem);
  }

  Scanner scanner_;
};

std::unique_ptr<RowFile> open(const OpenedFile& file) { return std::make_unique<JsonFile>(file); }

}  // namespace

void register_json() {
  registry<RowFormat>().add(
      "json", {[](std::string_view text, std::string_view) { return is_document(text); }, open});
}

}  // namespace temper::formats
