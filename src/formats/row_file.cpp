#include "formats/row_file.h"

#include <charconv>

#include "base/error.h"
#include "formats/format.h"

namespace temper::formats {
namespace {

// The parser's "[:LINE:COLUMN] message", counted from the row's own beginning; without a place, "[] message".
struct Complaint {
  int64_t line = 1;
  size_t column = 0;  // 0: not told
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

}  // namespace

std::unique_ptr<RowFile> RowFile::open(const std::string& path) {
  const MappedFile file(path);
  for (const auto& [name, format] : registry<RowFormat>().entries())
    if (format.recognizes(file.text())) return format.open({.path = path, .name = path});
  fail("[{}] no room of this build reads such a file", path);
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
