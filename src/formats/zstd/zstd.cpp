// Zstandard: any number of frames, skippable ones among them.
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "formats/format.h"

namespace temper::formats {
namespace {

constexpr std::string_view kMagic = "\x28\xB5\x2F\xFD";
constexpr std::string_view kSkippable = "\x2A\x4D\x18";  // after a byte 50 to 5F
constexpr int kMaxWindowLog = 27;

bool recognizes(std::string_view content) {
  return content.starts_with(kMagic) ||
         (content.size() >= 8 && (content[0] & 0xF0) == 0x50 && content.substr(1).starts_with(kSkippable));
}

// What the first frame says of itself. To find the others would mean to read through all of it.
int64_t least_bytes(const PackedFile& file) {
  for (std::string_view rest = file.all(); recognizes(rest);) {
    if (rest.starts_with(kMagic)) {
      const unsigned long long content = ZSTD_getFrameContentSize(rest.data(), rest.size());
      const bool known = content != ZSTD_CONTENTSIZE_UNKNOWN && content != ZSTD_CONTENTSIZE_ERROR;
      return known ? static_cast<int64_t>(std::min<unsigned long long>(content, INT64_MAX / 2)) : 0;
    }
    const size_t skipped = ZSTD_findFrameCompressedSize(rest.data(), rest.size());
    if (ZSTD_isError(skipped)) break;
    rest.remove_prefix(skipped);
  }
  return 0;
}

// Bytes of history that a frame asks for (RFC 8878, section 3.1.1.1.2); 0 when its header does not say.
uint64_t window_bytes(std::string_view frame) {
  if (frame.size() < 6 || !frame.starts_with(kMagic)) return 0;
  const auto header = static_cast<unsigned char>(frame[4]);
  const auto window = static_cast<unsigned char>(frame[5]);
  if (header & 0x20) return ZSTD_getFrameContentSize(frame.data(), frame.size());  // one segment
  const uint64_t base = uint64_t{1} << (10 + (window >> 3));
  return base + base / 8 * (window & 7);
}

class Unzstd {
 public:
  Unzstd(const PackedFile& file, RowWriter& rows)
      : file_(file),
        rows_(rows),
        stream_(ZSTD_createDStream(), ZSTD_freeDStream),
        buffer_(ZSTD_DStreamOutSize() * 16) {
    if (stream_ == nullptr) fail_resources("[{}] no memory to unpack it", file.path());
    ZSTD_DCtx_setParameter(stream_.get(), ZSTD_d_windowLogMax, kMaxWindowLog);
  }

  void run() {
    const size_t size = file_.all().size();
    while (at_ < size) {
      const std::string_view piece = file_.piece(at_);
      ZSTD_inBuffer input{piece.data(), piece.size(), 0};
      do step(input);
      while (input.pos < input.size || (full_ && wanted_ != 0));
      file_.passed(at_, at_ + piece.size());
      at_ += piece.size();
      rows_.progress(static_cast<double>(at_) / static_cast<double>(size));
    }
    if (wanted_ != 0) fail("[{}] ends inside a frame, at byte {}; it was cut off", file_.path(), size);
  }

 private:
  void step(ZSTD_inBuffer& input) {
    if (wanted_ == 0) frame_ = at_ + input.pos;
    ZSTD_outBuffer output{buffer_.data(), buffer_.size(), 0};
    wanted_ = ZSTD_decompressStream(stream_.get(), &output, &input);
    if (ZSTD_isError(wanted_)) stop(at_ + input.pos);
    rows_.write({buffer_.data(), output.pos});
    full_ = output.pos == output.size;
  }

  [[noreturn]] void stop(size_t at) const {
    const ZSTD_ErrorCode code = ZSTD_getErrorCode(wanted_);
    if (code == ZSTD_error_memory_allocation) fail_resources("[{}] no memory to unpack it", file_.path());
    if (code == ZSTD_error_frameParameter_windowTooLarge)
      fail(
          "[{}] byte {}: packed with a window of {}, which unpacking would hold in memory; at most {} are "
          "taken: pack "
          "it without --long, or unpack it with zstd -d --long=31",
          file_.path(), frame_, format_bytes(static_cast<int64_t>(window_bytes(file_.all().substr(frame_)))),
          format_bytes(int64_t{1} << kMaxWindowLog));
    if (code == ZSTD_error_prefix_unknown)
      fail("[{}] byte {}: no Zstandard frame; the file is damaged, or something was appended to it",
           file_.path(), frame_);
    fail("[{}] damaged near byte {}: {}; get the file again", file_.path(), at, ZSTD_getErrorName(wanted_));
  }

  const PackedFile& file_;
  RowWriter& rows_;
  std::unique_ptr<ZSTD_DStream, size_t (*)(ZSTD_DStream*)> stream_;
  std::vector<char> buffer_;
  size_t at_ = 0;
  size_t frame_ = 0;   // where the present frame begins
  size_t wanted_ = 0;  // 0: between frames
  bool full_ = false;  // there may be more to come out
};

void convert(const PackedFile& file, RowWriter& rows) { Unzstd(file, rows).run(); }

}  // namespace

void register_zstd() { registry<Conversion>().add("zstd", {recognizes, least_bytes, convert}); }

}  // namespace temper::formats
