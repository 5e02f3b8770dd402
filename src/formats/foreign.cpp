#include "formats/foreign.h"

#include <array>

#include "base/error.h"

namespace temper::formats {
namespace {

using namespace std::string_view_literals;

struct Foreign {
  size_t at;
  std::string_view magic;
  std::string_view what;
  std::string_view advice;
};

// The first three have rooms: what reaches this list was found by a build without them, or inside a packed
// file.
constexpr std::array kForeign = {
    Foreign{0, "PAR1"sv, "a Parquet file",
            "this build does not read them: make setup-parquet && make build adds that"},
    Foreign{0, "\x1F\x8B"sv, "a gzip file",
            "this build does not read them: install zlib1g-dev and run make build"},
    Foreign{0, "\x28\xB5\x2F\xFD"sv, "a Zstandard file",
            "this build does not read them: install libzstd-dev and run make build"},
    Foreign{0, "PARE"sv, "an encrypted Parquet file", "write it without encryption"},
    Foreign{0, "ARROW1"sv, "an Arrow file", "write it as Parquet or JSONL"},
    Foreign{0, "\xFF\xFF\xFF\xFF"sv, "an Arrow stream", "write it as Parquet or JSONL"},
    Foreign{0, "PK\x03\x04"sv, "a zip archive", "unpack it"},
    Foreign{0, "BZh"sv, "a bzip2 file", "unpack it, or pack it with gzip or zstd"},
    Foreign{0, "\xFD\x37zXZ"sv, "an xz file", "unpack it, or pack it with gzip or zstd"},
    Foreign{257, "ustar"sv, "a tar archive", "unpack it"},
    Foreign{0, "\xFF\xFE"sv, "UTF-16 text", "write it as UTF-8"},
    Foreign{0, "\xFE\xFF"sv, "UTF-16 text", "write it as UTF-8"},
};

}  // namespace

void refuse_foreign(std::string_view content, const std::string& name, bool unpacked) {
  for (const auto& [at, magic, what, advice] : kForeign) {
    if (content.size() < at + magic.size() || content.substr(at, magic.size()) != magic) continue;
    if (unpacked) fail("[{}] is packed around {}; unpack it and name what is inside", name, what);
    fail("[{}] is {}; {}", name, what, advice);
  }
}

}  // namespace temper::formats
