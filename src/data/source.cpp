#include "data/source.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"

namespace temper::data {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

size_t line_end(std::string_view text, size_t begin) {
  const void* found = std::memchr(text.data() + begin, '\n', text.size() - begin);
  return found ? static_cast<size_t>(static_cast<const char*>(found) - text.data()) : text.size();
}

bool blank(std::string_view line) { return line.find_first_not_of(" \t\r") == std::string_view::npos; }

// Hashes line by line, so that each page of a large file is read once.
std::vector<uint64_t> index_rows(std::string_view text, Hasher& hasher) {
  std::vector<uint64_t> begins;
  size_t hashed = 0;
  constexpr size_t kChunk = size_t{1} << 20;
  for (size_t begin = text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0; begin < text.size();) {
    const size_t end = line_end(text, begin);
    if (!blank(text.substr(begin, end - begin))) begins.push_back(begin);
    begin = end + 1;
    if (const size_t done = std::min(begin, text.size()); done - hashed >= kChunk || done == text.size()) {
      hasher.update(text.data() + hashed, done - hashed);
      hashed = done;
    }
  }
  return begins;
}

}  // namespace

Source::Source(const std::vector<std::string>& paths) {
  if (paths.empty()) fail("[data] no files given, expected at least one JSONL file");
  Hasher hasher;
  int64_t bytes = 0;
  for (const std::string& path : paths) {
    files_.push_back(std::make_unique<File>(path));
    File& file = *files_.back();
    file.first = size_;
    file.begins = index_rows(file.bytes.text(), hasher);
    size_ += static_cast<int64_t>(file.begins.size());
    bytes += static_cast<int64_t>(file.bytes.size());
  }
  if (size_ == 0) fail("[{}] no rows, expected one JSON object per line", join(paths));
  fingerprint_ = Json::Object{{"rows", size_}, {"bytes", bytes}, {"hash", hasher.digest()}};
}

const Source::File& Source::file_of(int64_t index) const {
  invariant(index >= 0 && index < size_, "a row's index is out of range");
  const auto after = std::upper_bound(files_.begin(), files_.end(), index,
                                      [](int64_t value, const auto& file) { return value < file->first; });
  return **std::prev(after);
}

std::string_view Source::text(int64_t index) const {
  const File& file = file_of(index);
  const std::string_view all = file.bytes.text();
  const size_t begin = file.begins[static_cast<size_t>(index - file.first)];
  std::string_view line = all.substr(begin, line_end(all, begin) - begin);
  while (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

std::string Source::place(int64_t index) const {
  const File& file = file_of(index);
  const std::string_view before =
      file.bytes.text().substr(0, file.begins[static_cast<size_t>(index - file.first)]);
  return fmt::format("{}:{}", file.path, std::count(before.begin(), before.end(), '\n') + 1);
}

Json Source::row(int64_t index) const {
  try {
    return Json::parse(text(index), "");
  } catch (const Error& error) {
    // The parser says "[]" or, counting lines from the row's own beginning, "[:1:COLUMN]".
    std::string_view message = error.what();
    message.remove_prefix(message.starts_with("[:1") ? 3 : 1);
    fail("[{}{}", place(index), message);
  }
}

}  // namespace temper::data
