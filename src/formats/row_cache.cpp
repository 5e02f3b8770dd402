#include "formats/row_cache.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <ctime>
#include <optional>

#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/text.h"
#include "formats/claim.h"

namespace temper::formats {
namespace {

constexpr const char* kTemporary = ".tmp";
constexpr int64_t kKeptSeconds = int64_t{30} * 24 * 3600;
constexpr int64_t kSpareBytes = int64_t{16} << 20;

// When the file was last changed or, for rows, last used; in nanoseconds.
int64_t time_of(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return 0;
  return int64_t{info.st_mtim.tv_sec} * 1000000000 + info.st_mtim.tv_nsec;
}

// What changes when a file is rewritten or replaced by another one.
struct Stamp {
  int64_t time = 0;
  int64_t size = 0;
  uint64_t file = 0;
  bool operator==(const Stamp&) const = default;
};

Stamp stamp_of(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return {};
  return {time_of(path), info.st_size, info.st_ino};
}

struct Key {
  std::string content;  // hash of the packed file
  std::string ending;   // ".gzip1"
  std::string name() const { return content + ending; }
};

std::optional<CachedRows> find(const Key& key) {
  const std::string folder = row_cache_folder();
  if (!is_directory(folder)) return std::nullopt;
  for (const std::string& name : list_directory(folder)) {
    if (!name.starts_with(key.content + "-") || !name.ends_with(key.ending)) continue;
    const size_t begin = key.content.size() + 1;
    CachedRows rows{join_path(folder, name), name.substr(begin, name.size() - key.ending.size() - begin)};
    ::utimensat(AT_FDCWD, rows.path.c_str(), nullptr,
                0);  // used now; a cache that is only read stays as it is
    return rows;
  }
  return std::nullopt;
}

void sweep() {
  const std::string folder = row_cache_folder();
  const int64_t oldest = (int64_t{std::time(nullptr)} - kKeptSeconds) * 1000000000;
  for (const std::string& name : list_directory(folder)) {
    const std::string path = join_path(folder, name);
    if (name.ends_with(kTemporary))
      Claim::sweep(path);
    else if (time_of(path) < oldest)
      remove_all(path);
  }
}

void require_space(const PackedFile& file, int64_t least) {
  const int64_t free = free_disk_bytes(row_cache_folder());
  if (free < least + kSpareBytes)
    fail_resources(
        "[{}] its rows take at least {} in {}, where {} are free; free some space, or set XDG_CACHE_HOME to "
        "another "
        "folder",
        file.path(), format_bytes(least), row_cache_folder(), format_bytes(free));
}

std::unique_ptr<Claim> claim(const Key& key, const std::string& path) {
  try {
    make_directories(row_cache_folder());
    sweep();
    return std::make_unique<Claim>(join_path(row_cache_folder(), key.name() + kTemporary), path);
  } catch (const Error& error) {
    fail_to_keep(path, error);
  }
}

// `before`: the file's stamp before it was hashed.
CachedRows convert(const Key& key, const PackedFile& file, const Stamp& before, const Conversion& conversion,
                   Claim& claim) {
  require_space(file, conversion.least_bytes(file));
  RowWriter writer(join_path(row_cache_folder(), key.name() + kTemporary), file.path());
  conversion.convert(file, writer);
  writer.close();
  if (stamp_of(file.path()) != before)
    fail("[{}] changed while it was read; run the command again", file.path());
  CachedRows rows{
      fmt::format("{}-{}{}", join_path(row_cache_folder(), key.content), writer.hash(), key.ending),
      writer.hash()};
  claim.rename_to(rows.path);
  log_info(fmt::format("{}: {} of rows are kept in {}", file.path(), format_bytes(writer.bytes()),
                       row_cache_folder()));
  return rows;
}

std::string hash_of(const PackedFile& file) {
  Hasher hasher;
  for (size_t at = 0; at < file.all().size(); at += file.piece(at).size()) {
    hasher.update(file.piece(at).data(), file.piece(at).size());
    file.passed(at, at + file.piece(at).size());
  }
  return hasher.digest();
}

}  // namespace

std::string row_cache_folder() { return join_path(cache_folder(), "data"); }

CachedRows cached_rows(const std::string& path, const std::string& format, const Conversion& conversion) {
  const Stamp before = stamp_of(path);
  const PackedFile file(path);
  const Key key{hash_of(file), fmt::format(".{}{}", format, conversion.version)};
  if (const auto rows = find(key)) return *rows;
  const std::unique_ptr<Claim> claimed = claim(key, path);
  if (const auto rows = find(key)) return *rows;  // whoever had the claim before made them
  return convert(key, file, before, conversion, *claimed);
}

}  // namespace temper::formats
