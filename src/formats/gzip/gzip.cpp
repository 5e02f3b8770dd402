// gzip, also several members one after the other.
#include <zlib.h>

#include <vector>

#include "base/error.h"
#include "formats/format.h"

namespace temper::formats {
namespace {

constexpr std::string_view kMagic = "\x1F\x8B";
constexpr size_t kOutput = size_t{4} << 20;
constexpr int kGzipOnly = 16 + MAX_WBITS;

bool recognizes(std::string_view content) { return content.starts_with(kMagic); }

// The last member says its size modulo 2^32; and deflate makes nothing much larger than it was.
int64_t least_bytes(const PackedFile& file) {
  const std::string_view all = file.all();
  uint32_t last = 0;
  if (all.size() < 18) return 0;  // no whole member
  for (size_t byte = 0; byte < 4; ++byte)
    last |= uint32_t{static_cast<unsigned char>(all[all.size() - 4 + byte])} << (8 * byte);
  return std::max<int64_t>(last, static_cast<int64_t>(all.size() / 100 * 99));
}

class Gunzip {
 public:
  Gunzip(const PackedFile& file, RowWriter& rows) : file_(file), rows_(rows), buffer_(kOutput) {
    if (inflateInit2(&stream_, kGzipOnly) != Z_OK) fail_resources("[{}] no memory to unpack it", file.path());
  }
  ~Gunzip() { inflateEnd(&stream_); }
  Gunzip(const Gunzip&) = delete;
  Gunzip& operator=(const Gunzip&) = delete;

  void run() {
    const size_t size = file_.all().size();
    while (at_ < size) {
      member();
      const size_t rest = file_.all().find_first_not_of('\0', at_);  // tapes and block devices pad with zeros
      if (rest == std::string_view::npos) return;
      if (!file_.all().substr(rest).starts_with(kMagic))
        fail("[{}] byte {}: not gzip any more; the file is damaged, or something was appended to it",
             file_.path(), rest);
      at_ = rest;
      if (inflateReset(&stream_) != Z_OK) fail("[{}] cannot unpack: zlib's state is broken", file_.path());
    }
  }

 private:
  void member() {
    int status = Z_OK;
    while (status != Z_STREAM_END) {
      const std::string_view input = file_.piece(at_);
      if (input.empty())
        fail("[{}] ends inside its compressed data, at byte {}; it was cut off", file_.path(), at_);
      stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(input.data()));
      stream_.avail_in = static_cast<uInt>(input.size());
      do status = step();
      while (status == Z_OK && (stream_.avail_in > 0 || stream_.avail_out == 0));
      const size_t before = at_;
      at_ += input.size() - stream_.avail_in;
      file_.passed(before, at_);
      rows_.progress(static_cast<double>(at_) / static_cast<double>(file_.all().size()));
    }
  }

  int step() {
    stream_.next_out = reinterpret_cast<Bytef*>(buffer_.data());
    stream_.avail_out = static_cast<uInt>(buffer_.size());
    const int status = inflate(&stream_, Z_NO_FLUSH);
    rows_.write({buffer_.data(), buffer_.size() - stream_.avail_out});
    if (status == Z_OK || status == Z_STREAM_END) return status;
    if (status == Z_BUF_ERROR) return Z_OK;  // wants more input
    if (status == Z_MEM_ERROR) fail_resources("[{}] no memory to unpack it", file_.path());
    const char* reason = stream_.msg != nullptr ? stream_.msg : "it needs a dictionary";
    const auto* base = reinterpret_cast<const Bytef*>(file_.all().data());
    fail("[{}] damaged near byte {}: {}; get the file again", file_.path(), stream_.next_in - base, reason);
  }

  const PackedFile& file_;
  RowWriter& rows_;
  std::vector<char> buffer_;
  z_stream stream_ = {};
  size_t at_ = 0;
};

void convert(const PackedFile& file, RowWriter& rows) { Gunzip(file, rows).run(); }

}  // namespace

void register_gzip() { registry<Conversion>().add("gzip", {recognizes, least_bytes, convert}); }

}  // namespace temper::formats
