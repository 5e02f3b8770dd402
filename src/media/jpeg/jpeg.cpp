// JPEG by libjpeg-turbo: the accurate transform and smooth upsampling, which are its defaults and Pillow's.
#include <csetjmp>
#include <cstdio>

// These need <cstdio>, and the second one the first.
#include <jpeglib.h>

#include <jerror.h>

#include "base/error.h"
#include "media/jpeg/markers.h"

namespace temper::media {
namespace {

constexpr std::string_view kMagic = "\xFF\xD8\xFF";
// A file of a few kilobytes can have tens of thousands of scans of a large picture. libjpeg-turbo's own
// fuzzers stop at as many.
constexpr int kMostScans = 500;

bool recognizes(std::string_view bytes) { return bytes.starts_with(kMagic); }

enum class Failure { kNone, kTruncated, kScans, kMemory, kOther };

// libjpeg reports errors by calling a function that must not return: it jumps back to where decoding was
// started. What it jumps over has no destructors.
struct Decoding {
  jpeg_decompress_struct info = {};
  jpeg_error_mgr errors = {};
  jpeg_source_mgr source = {};
  jpeg_progress_mgr progress = {};
  std::jmp_buf start = {};
  Failure failure = Failure::kNone;
  char message[JMSG_LENGTH_MAX] = {};
  Picture* picture = nullptr;

  ~Decoding() { jpeg_destroy_decompress(&info); }
};

[[noreturn]] void stop(j_common_ptr info, Failure failure) {
  auto& decoding = *static_cast<Decoding*>(info->client_data);
  decoding.failure = failure;
  std::longjmp(decoding.start, 1);
}

void on_error(j_common_ptr info) {
  auto& decoding = *static_cast<Decoding*>(info->client_data);
  info->err->format_message(info, decoding.message);
  stop(info, info->err->msg_code == JERR_OUT_OF_MEMORY ? Failure::kMemory : Failure::kOther);
}

void on_message(j_common_ptr) {}

// All bytes are there from the beginning: who asks for more has a file that was cut off.
boolean on_end(j_decompress_ptr info) { stop(reinterpret_cast<j_common_ptr>(info), Failure::kTruncated); }

void on_start(j_decompress_ptr) {}

void skip(j_decompress_ptr info, long count) {
  if (count <= 0) return;
  if (static_cast<size_t>(count) > info->src->bytes_in_buffer) on_end(info);
  info->src->next_input_byte += count;
  info->src->bytes_in_buffer -= static_cast<size_t>(count);
}

void on_progress(j_common_ptr info) {
  if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number > kMostScans) stop(info, Failure::kScans);
}

void prepare(Decoding& decoding, std::string_view bytes) {
  jpeg_decompress_struct& info = decoding.info;
  info.err = jpeg_std_error(&decoding.errors);
  decoding.errors.error_exit = on_error;
  decoding.errors.output_message = on_message;
  info.client_data = &decoding;
  jpeg_create_decompress(&info);
  info.client_data = &decoding;
  decoding.source = {reinterpret_cast<const JOCTET*>(bytes.data()),
                     bytes.size(),
                     on_start,
                     on_end,
                     skip,
                     jpeg_resync_to_restart,
                     on_start};
  info.src = &decoding.source;
  decoding.progress.progress_monitor = on_progress;
  info.progress = &decoding.progress;
}

// Returns false where libjpeg failed.
bool decode_into(Decoding& decoding, std::string_view bytes) {
  if (setjmp(decoding.start) != 0) return false;
  prepare(decoding, bytes);
  jpeg_decompress_struct& info = decoding.info;
  jpeg_read_header(&info, TRUE);
  info.out_color_space = info.num_components == 4 ? JCS_CMYK : JCS_EXT_RGBX;
  jpeg_start_decompress(&info);
  if (static_cast<int64_t>(info.output_width) != decoding.picture->width() ||
      static_cast<int64_t>(info.output_height) != decoding.picture->height()) {
    std::snprintf(decoding.message, sizeof(decoding.message), "it has two frames of different sizes");
    stop(reinterpret_cast<j_common_ptr>(&info), Failure::kOther);
  }
  while (info.output_scanline < info.output_height) {
    JSAMPROW rows[] = {decoding.picture->row(info.output_scanline),
                       decoding.picture->row(info.output_scanline + 1)};
    jpeg_read_scanlines(&info, rows, info.output_scanline + 1 < info.output_height ? 2 : 1);
  }
  jpeg_finish_decompress(&info);
  return true;
}

uint8_t divided_by_255(int product) {  // rounded, as Pillow's MULDIV255
  const int shifted = product + 128;
  return static_cast<uint8_t>(((shifted >> 8) + shifted) >> 8);
}

// Files have 255 less the ink, as Adobe writes them and Pillow takes all: what is left of the light is that
// of a color less what black takes of it.
void colors_of_inks(Picture& picture) {
  for (int64_t y = 0; y < picture.height(); ++y) {
    uint8_t* const row = picture.row(y);
    for (int64_t x = 0; x < picture.width(); ++x) {
      uint8_t* const pixel = row + x * Picture::kPixelBytes;
      const int light = pixel[3];
      for (int color = 0; color < Picture::kColors; ++color)
        pixel[color] = static_cast<uint8_t>(light - divided_by_255((255 - pixel[color]) * light));
    }
  }
}

Picture decode(const Encoded& file, const Header& header) {
  Picture picture(header.stored);
  Decoding decoding;
  decoding.picture = &picture;
  if (!decode_into(decoding, file.bytes)) {
    if (decoding.failure == Failure::kTruncated) fail_truncated(file);
    if (decoding.failure == Failure::kMemory)
      throw OutOfMemory(fmt::format("[{}] no memory to decode it", file.name));
    if (decoding.failure == Failure::kScans)
      fail("[{}] has more than {} scans, which no program writes; save it again with another program",
           file.name, kMostScans);
    fail_damaged(file, decoding.message);
  }
  if (decoding.info.out_color_space == JCS_CMYK) colors_of_inks(picture);
  return picture;
}

}  // namespace

void register_jpeg() { registry<Decoder>().add("jpeg", {recognizes, read_jpeg_header, decode}); }

}  // namespace temper::media
