#include <zstd.h>

#include "formats/test_support.h"
#include "tests/support/errors.h"

namespace temper::formats {
namespace {

using Rows = std::vector<std::string>;

struct FrameOptions {
  int window_log = 0;
  bool tell_size = true;
};

std::string frame(const std::string& text, FrameOptions options = {}) {
  const std::unique_ptr<ZSTD_CCtx, size_t (*)(ZSTD_CCtx*)> context(ZSTD_createCCtx(), ZSTD_freeCCtx);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_checksumFlag, 1);
  if (options.window_log > 0) ZSTD_CCtx_setParameter(context.get(), ZSTD_c_windowLog, options.window_log);
  std::string out(ZSTD_compressBound(text.size()) + 64, '\0');
  ZSTD_inBuffer input{text.data(), text.size(), 0};
  ZSTD_outBuffer output{out.data(), out.size(), 0};
  if (options.tell_size) {
    ZSTD_CCtx_setPledgedSrcSize(context.get(), text.size());
  } else {
    ZSTD_compressStream2(context.get(), &output, &input, ZSTD_e_continue);
  }
  EXPECT_EQ(ZSTD_compressStream2(context.get(), &output, &input, ZSTD_e_end), 0U);
  out.resize(output.pos);
  return out;
}

std::string skippable(const std::string& content) {
  std::string out = "\x51\x2A\x4D\x18";
  for (int byte = 0; byte < 4; ++byte) out += static_cast<char>(content.size() >> (8 * byte) & 0xFF);
  return out + content;
}

class Zstd : public CacheTest {};

TEST_F(Zstd, RowsOfOneFrameAndOfMany) {
  const Rows rows = {"{\"a\":1}", "{\"a\":2}"};
  EXPECT_EQ(rows_of(*WrittenFile(frame("{\"a\":1}\n{\"a\":2}\n")).open()), rows);
  EXPECT_EQ(rows_of(*WrittenFile(skippable("hello") + frame("{\"a\":", {.tell_size = false}) + frame("") +
                                 skippable("") + frame("1}\r\n{\"a\":2}"))
                         .open()),
            rows);
  EXPECT_EQ(rows_of(*WrittenFile(frame("[{\"a\":1},\n{\"a\":2}]")).open()), rows);
  EXPECT_EQ(WrittenFile(frame("")).open()->size(), 0);
}

TEST_F(Zstd, LargeContent) {
  std::string text;
  for (int i = 0; text.size() < (size_t{24} << 20); ++i)
    text += fmt::format("{{\"row\":{},\"n\":{}}}\n", i, i * 7919LL % 10007);
  // Sizes that fill what is written at once exactly.
  const std::string even(size_t{16} << 17, '\n');
  const WrittenFile file(frame(text, {.tell_size = false}) + frame(even) + frame(text)),
      plain(text + even + text);
  const auto rows = file.open(), expected = plain.open();
  EXPECT_EQ(rows->size(), expected->size());
  EXPECT_EQ(rows->hash(), expected->hash());
}

TEST_F(Zstd, CutOffAtEveryByte) {
  const std::string whole =
      frame("{\"a\":\"a text that is long enough to be squeezed, squeezed, squeezed\"}\n");
  for (size_t size = 4; size < whole.size(); ++size) {
    const WrittenFile file(whole.substr(0, size));
    EXPECT_EQ(error_of([&] { file.open(); }),
              fmt::format("[{}] ends inside a frame, at byte {}; it was cut off", file.path(), size));
  }
  EXPECT_TRUE(cached().empty());
}

TEST_F(Zstd, DamageIsSeen) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += fmt::format("{{\"row\":{}}}\n", i * 7919);
  const std::string whole = frame(text);
  for (size_t at = 12; at < whole.size(); at += 97) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    const WrittenFile file(damaged);
    expect_has(error_of([&] { file.open(); }), fmt::format("[{}] ", file.path()));
  }
  const WrittenFile appended(whole + "text");
  EXPECT_EQ(
      error_of([&] { appended.open(); }),
      fmt::format("[{}] byte {}: no Zstandard frame; the file is damaged, or something was appended to it",
                  appended.path(), whole.size()));
  EXPECT_TRUE(cached().empty());
}

// A frame that says it holds 2^50 bytes, after one that is skipped.
TEST_F(Zstd, DeclaredSizesAreCheckedBeforeUnpacking) {
  const std::string header("\x28\xB5\x2F\xFD\xE0\0\0\0\0\0\0\x04\0", 13);
  const WrittenFile file(skippable("about") + header);
  const std::string message = error_of([&] { file.open(); }, ErrorKind::kResources);
  expect_has(message, fmt::format("[{}] its rows take at least 1.00 PiB in ", file.path()));
}

TEST_F(Zstd, LongWindowsAreRefusedWithWhatTheyNeed) {
  const std::string first = frame("{}\n");
  const WrittenFile file(first + frame("{}\n", {.window_log = 30, .tell_size = false}));
  const std::string message = error_of([&] { file.open(); });
  expect_has(message,
             fmt::format("[{}] byte {}: packed with a window of 1.00 GiB", file.path(), first.size()));
  expect_has(message, "at most 128.00 MiB are taken");
}

}  // namespace
}  // namespace temper::formats
