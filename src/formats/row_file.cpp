#include "formats/row_file.h"

#include <charconv>

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "formats/foreign.h"
#include "formats/format.h"
#include "formats/row_cache.h"

namespace temper::formats {
namespace {

constexpr std::string_view kOneRowALine = "jsonl";

// The parser's "[:LINE:COLUMN] message", counted from the row's own beginning; without a place, "[] message".
struct Complaint {
  int64_t line = 1;
  size_t column = 0;  // 0: not known
  std::string_view message;
};

Complaint read_complaint(std::string_view text) {
  Complaint complaint;
  const size_t close = text.find(']');
  complaint.message = text.substr(std::min(close, text.size() - 1) + 1);
  if (!text.starts_with("[:")) return complaint;
  const char* end = text.data() + close;
  const auto line = std::from_chars(text.data() + 2, end, complaint.line);
  if (line.ptr < end) std::from_chars(line.ptr + 1, end, complaint.column);
  return complaint;
}

std::unique_ptr<RowFile> open_text(const OpenedFile& file) {
  const MappedFile bytes(file.path);
  refuse_foreign(bytes.text(), file.name, file.path != file.name);
  for (const auto& [name, format] : registry<RowFormat>().entries())
    if (file.has_lines ? format.recognizes(bytes.text(), file.name) : name == kOneRowALine)
      return format.open(file);
  fail("[{}] no room of this build reads such a file", file.name);
}

// Null when the rows are not those that were written.
std::unique_ptr<RowFile> open_cached(const CachedRows& rows, const OpenedFile& file) {
  try {
    auto opened = open_text(file);
    if (opened->hash() == rows.hash) return opened;
  } catch (const Error&) {
    if (hash_file(rows.path) == rows.hash) throw;
  }
  return nullptr;
}

std::unique_ptr<RowFile> open_converted(const std::string& path, const std::string& format,
                                        const Conversion& conversion) {
  for (int attempt = 0; attempt < 2; ++attempt) {
    const CachedRows rows = cached_rows(path, format, conversion);
    if (auto file = open_cached(rows, {rows.path, path, conversion.writes == RowsWritten::kText}))
      return file;
    log_warning(fmt::format("[{}] is damaged and made again from {}", rows.path, path));
    remove_all(rows.path);
  }
  fail("[{}] its rows were damaged in {} as soon as they were written; check that disk", path,
       row_cache_folder());
}

}  // namespace

std::unique_ptr<RowFile> RowFile::open(const std::string& path) {
  const MappedFile file(path);
  for (const auto& [name, conversion] : registry<Conversion>().entries())
    if (conversion.recognizes(file.text())) return open_converted(path, name, conversion);
  return open_text({.path = path, .name = path});
}

size_t RowFile::begin(int64_t row) const {
  invariant(row >= 0 && row < size(), "a row's index is out of range");
  return begins_[static_cast<size_t>(row)];
}

Json RowFile::parse(int64_t row) const {
  try {
    return Json::parse(text(row), "");
  } catch (const Error& error) {
    const Complaint complaint = read_complaint(error.what());
    if (complaint.column == 0 || !has_lines_) fail("[{}]{}", place(row), complaint.message);
    const size_t first_column = complaint.line == 1 ? text_.column(begin(row)) - 1 : 0;
    fail("[{}:{}:{}]{}", name_, text_.line(begin(row)) + complaint.line - 1, first_column + complaint.column,
         complaint.message);
  }
}

}  // namespace temper::formats
