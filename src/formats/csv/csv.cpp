// Records of RFC 4180, of which the first names the columns. Every value is a text.
#include <unordered_set>

#include "base/error.h"
#include "base/text.h"
#include "formats/csv/records.h"
#include "formats/endings.h"
#include "formats/format.h"

namespace temper::formats {
namespace {

class CsvFile : public RowFile {
 public:
  explicit CsvFile(const OpenedFile& file)
      : RowFile(file),
        is_tsv_(ending_of(name_) == ".tsv"),
        records_(is_tsv_ ? '\t' : separator_of(text_.all())) {
    const std::string_view all = text_.all();
    size_t at = all.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
    while (at < all.size()) {
      const size_t end = records_.skip(all, at);
      if (end == std::string_view::npos) stop(records_.problem_at(), records_.problem());
      if (all.substr(at, end - at).find_first_not_of("\r\n") != std::string_view::npos) {
        if (columns_.empty())
          read_header(at);
        else
          add_record(at, end);
      }
      at = end;
      text_.pass(end);
    }
    text_.finish();
    begins_.shrink_to_fit();
  }

  std::string_view text(int64_t row) const override {
    Records records = records_;
    const size_t first = begin(row);
    std::string_view record = text_.all().substr(first, records.skip(text_.all(), first) - first);
    while (record.ends_with('\n') || record.ends_with('\r')) record.remove_suffix(1);
    return record;
  }

  std::string place(int64_t row) const override {
    return fmt::format("{}:{}", name_, text_.line(begin(row)));
  }

  Json parse(int64_t row) const override {
    std::vector<std::string> fields = records_.read(text_.all(), begin(row));
    if (fields.size() != columns_.size())
      fail(
          "[{}] the record has {} fields, the header has {} ({}); put a field that holds the separator or a "
          "line end in quotes",
          place(row), fields.size(), columns_.size(), list_some(columns_, ", ", 20));
    Json::Object object;
    for (size_t i = 0; i < fields.size(); ++i) {
      if (columns_[i].empty()) continue;
      if (valid_utf8_prefix(fields[i]) < fields[i].size())
        fail("[{}] column '{}' is not UTF-8; write the file as UTF-8", place(row), columns_[i]);
      object.emplace_back(columns_[i], std::move(fields[i]));
    }
    return object;
  }

 private:
  void add_record(size_t at, size_t end) {
    const size_t unclear = is_tsv_ ? records_.unclear_quote(text_.all().substr(0, end), at, columns_.size())
                                   : std::string_view::npos;
    if (unclear != std::string_view::npos)
      stop(unclear,
           "a quote is opened here and closed lines later, but each of these lines is a record of its own "
           "where quotes are text; write quotes in a text twice and the text in quotes, or, where they are "
           "meant to hold line ends, name the file .csv");
    begins_.push_back(at);
  }

  // A column without a name is the number of the row in exports of tables; it is left out.
  void read_header(size_t at) {
    columns_ = records_.read(text_.all(), at);
    bool named = false;
    std::unordered_set<std::string_view> names;
    for (size_t i = 0; i < columns_.size(); ++i) {
      named |= !columns_[i].empty();
      if (valid_utf8_prefix(columns_[i]) < columns_[i].size())
        stop(at, "the header is not UTF-8; write the file as UTF-8");
      if (!columns_[i].empty() && !names.insert(columns_[i]).second)
        stop(at, fmt::format("two columns are called '{}'; the first record must name each column once",
                             columns_[i]));
    }
    if (!named) stop(at, "the header names no column; the first record must name them");
  }

  [[noreturn]] void stop(size_t at, std::string_view problem) {
    text_.pass(at);
    fail("[{}:{}:{}] not valid {}: {}", name_, text_.line(at), text_.column(at), is_tsv_ ? "TSV" : "CSV",
         problem);
  }

  bool is_tsv_;
  Records records_;
  std::vector<std::string> columns_;
};

bool recognizes(std::string_view text, std::string_view name) {
  const std::string ending = ending_of(name);
  return (ending == ".csv" || ending == ".tsv") && !begins_as_json(text);
}

std::unique_ptr<RowFile> open(const OpenedFile& file) { return std::make_unique<CsvFile>(file); }

}  // namespace

void register_csv() { registry<RowFormat>().add("csv", {recognizes, open}); }

}  // namespace temper::formats
