#include <zlib.h>

#include "formats/test_support.h"
#include "tests/support/errors.h"

namespace temper::formats {
namespace {

using Rows = std::vector<std::string>;

std::string member(const std::string& text) {
  z_stream stream = {};
  deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, text.size()) + 32, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

class Gzip : public CacheTest {};

TEST_F(Gzip, RowsOfOneMemberAndOfMany) {
  const Rows rows = {"{\"a\":1}", "{\"a\":2}"};
  EXPECT_EQ(rows_of(*WrittenFile(member("{\"a\":1}\n{\"a\":2}\n")).open()), rows);
  EXPECT_EQ(rows_of(*WrittenFile(member("{\"a\":") + member("") + member("1}\r\n{\"a\":2}")).open()), rows);
  EXPECT_EQ(rows_of(*WrittenFile(member("[{\"a\":1},\n{\"a\":2}]") + std::string(512, '\0')).open()), rows);
  EXPECT_EQ(WrittenFile(member("")).open()->size(), 0);
  const WrittenFile plain("{\"a\":1}\n"), packed(member("{\"a\":1}\n"));
  EXPECT_EQ(plain.open()->hash(), packed.open()->hash());
}

TEST_F(Gzip, LargeContent) {
  std::string text;
  for (int i = 0; text.size() < (size_t{24} << 20); ++i)
    text += fmt::format("{{\"row\":{},\"n\":{}}}\n", i, i * 7919LL % 10007);
  const WrittenFile file(member(text) + member(text)), plain(text + text);
  const auto rows = file.open(), expected = plain.open();
  EXPECT_EQ(rows->size(), expected->size());
  EXPECT_EQ(rows->hash(), expected->hash());
}

TEST_F(Gzip, CutOffAtEveryByte) {
  const std::string whole =
      member("{\"a\":\"a text that is long enough to be squeezed, squeezed, squeezed\"}\n");
  for (size_t size = 2; size < whole.size(); ++size) {
    const WrittenFile file(whole.substr(0, size));
    EXPECT_EQ(
        error_of([&] { file.open(); }),
        fmt::format("[{}] ends inside its compressed data, at byte {}; it was cut off", file.path(), size));
  }
  EXPECT_TRUE(cached().empty());
}

TEST_F(Gzip, DamageIsSeen) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += fmt::format("{{\"row\":{}}}\n", i * 7919);
  const std::string whole = member(text);
  for (size_t at = 10; at < whole.size(); at += 97) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    const WrittenFile file(damaged);
    expect_has(error_of([&] { file.open(); }), file.path());
  }
  std::string wrong_sum = whole;
  wrong_sum[whole.size() - 6] ^= 1;
  expect_has(error_of([&] { WrittenFile(wrong_sum).open(); }), "damaged near byte");
  const WrittenFile appended(whole + "text");
  EXPECT_EQ(
      error_of([&] { appended.open(); }),
      fmt::format("[{}] byte {}: not gzip any more; the file is damaged, or something was appended to it",
                  appended.path(), whole.size()));
  EXPECT_TRUE(cached().empty());
}

TEST_F(Gzip, PackedTwiceIsRefused) {
  const WrittenFile file(member(member("{}")));
  EXPECT_EQ(error_of([&] { file.open(); }),
            fmt::format("[{}] is packed around a gzip file; unpack it and name what is inside", file.path()));
}

}  // namespace
}  // namespace temper::formats
