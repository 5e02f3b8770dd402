#include "data/sources/source.h"

#include <algorithm>

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"

namespace temper::data {

Source::Source(const std::vector<std::string>& paths) {
  if (paths.empty()) fail("[data] no files given, expected at least one data file");
  Hasher hasher;
  int64_t bytes = 0;
  for (const std::string& path : paths) {
    files_.push_back(formats::RowFile::open(path));
    const formats::RowFile& file = *files_.back();
    first_.push_back(size_);
    size_ += file.size();
    bytes += file.bytes();
    hasher.update(file.hash().data(), file.hash().size());
  }
  if (size_ == 0) {
    const bool one = paths.size() == 1;
    fail("[{}] {}; expected rows, such as one JSON object a line (docs/data.md)", join(paths),
         bytes == 0 ? (one ? "the file is empty" : "all of these files are empty")
                    : (one ? "the file holds no rows" : "none of these files holds a row"));
  }
  fingerprint_ = Json::Object{{"rows", size_}, {"bytes", bytes}, {"hash", hasher.digest()}};
}

Source::Row Source::find(int64_t index) const {
  invariant(index >= 0 && index < size_, "a row's index is out of range");
  const auto file = std::prev(std::upper_bound(first_.begin(), first_.end(), index));
  return {files_[static_cast<size_t>(file - first_.begin())].get(), index - *file};
}

std::string_view Source::text(int64_t index) const {
  const Row row = find(index);
  return row.file->text(row.index);
}

void Source::check_unchanged(int64_t index) const { find(index).file->check_unchanged(); }

std::string Source::place(int64_t index) const {
  const Row row = find(index);
  return row.file->place(row.index);
}

Json Source::row(int64_t index) const {
  const Row row = find(index);
  return row.file->parse(row.index);
}

}  // namespace temper::data
