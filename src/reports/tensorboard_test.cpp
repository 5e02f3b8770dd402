#include "reports/tensorboard.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>

#include "reports/crc32c.h"

namespace temper::reports {
namespace {

// An independent reader: a message is a list of (field, raw value), the value a number's bytes or text.
using Fields = std::multimap<uint32_t, std::string>;

uint64_t take_varint(std::string_view& in) {
  uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = static_cast<unsigned char>(in.at(0));
    in.remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return value;
  }
}

Fields decode(std::string_view in) {
  Fields fields;
  while (!in.empty()) {
    const uint64_t key = take_varint(in);
    std::string value;
    if ((key & 7) == 0) {
      value = std::to_string(static_cast<int64_t>(take_varint(in)));
    } else {
      const size_t size = (key & 7) == 1 ? 8 : (key & 7) == 5 ? 4 : take_varint(in);
      EXPECT_LE(size, in.size());
      value = in.substr(0, size);
      in.remove_prefix(size);
    }
    fields.emplace(static_cast<uint32_t>(key >> 3), value);
  }
  return fields;
}

template <class T>
T number(const std::string& bytes) {
  EXPECT_EQ(bytes.size(), sizeof(T));
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

// Bit by bit, unlike the table under test.
uint32_t slow_masked_crc(std::string_view data) {
  uint32_t crc = 0xFFFFFFFF;
  for (const char c : data) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? crc >> 1 ^ 0x82F63B78 : crc >> 1;
  }
  crc = ~crc;
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8;
}

std::vector<Fields> read_events(const std::string& path) {
  const std::string file = read_file(path);
  std::vector<Fields> events;
  for (size_t at = 0; at < file.size();) {
    const auto length = number<uint64_t>(file.substr(at, 8));
    EXPECT_EQ(number<uint32_t>(file.substr(at + 8, 4)), slow_masked_crc(file.substr(at, 8)));
    const std::string data = file.substr(at + 12, length);
    EXPECT_EQ(number<uint32_t>(file.substr(at + 12 + length, 4)), slow_masked_crc(data));
    events.push_back(decode(data));
    at += 16 + length;
  }
  return events;
}

TEST(Crc32c, MatchesPublishedVectors) {
  // RFC 3720 B.4, and the check value of the CRC catalogues.
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43u);
  std::string ascending;
  for (int i = 0; i < 32; ++i) ascending += static_cast<char>(i);
  EXPECT_EQ(crc32c(ascending), 0x46DD794Eu);
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(masked_crc32c("temper"), slow_masked_crc("temper"));
}

TEST(TensorBoard, EventsReadBack) {
  const TemporaryDirectory folder;
  TensorBoardWriter writer(folder / "events");
  writer.write(1, {{"train/loss", 2.5}, {"train/lr", 1e-5}}, 1000.25);
  writer.write(int64_t{1} << 40, {{"eval/loss", NAN}});
  writer.close();
  const std::vector<Fields> events = read_events(writer.path());
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].find(3)->second, "brain.Event:2");
  EXPECT_EQ(number<double>(events[1].find(1)->second), 1000.25);
  EXPECT_EQ(events[1].find(2)->second, "1");
  EXPECT_EQ(events[2].find(2)->second, "1099511627776");
  const Fields summary = decode(events[1].find(5)->second);
  ASSERT_EQ(summary.count(1), 2u);
  const Fields loss = decode(summary.find(1)->second);
  EXPECT_EQ(loss.find(1)->second, "train/loss");
  EXPECT_EQ(number<float>(loss.find(2)->second), 2.5f);
  const Fields lr = decode(std::next(summary.find(1))->second);
  EXPECT_EQ(lr.find(1)->second, "train/lr");
  EXPECT_EQ(number<float>(lr.find(2)->second), 1e-5f);
  const Fields eval = decode(decode(events[2].find(5)->second).find(1)->second);
  EXPECT_TRUE(std::isnan(number<float>(eval.find(2)->second)));
}

TEST(TensorBoard, EachWriterHasItsFile) {
  const TemporaryDirectory folder;
  TensorBoardWriter first(folder.path());
  TensorBoardWriter second(folder.path(), 8);
  EXPECT_NE(first.path(), second.path());
  EXPECT_TRUE(file_name(first.path()).starts_with("events.out.tfevents."));
  const std::vector<Fields> events = read_events(second.path());
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[1].find(2)->second, "8");
  EXPECT_EQ(decode(events[1].find(7)->second).find(1)->second, "1");
}

}  // namespace
}  // namespace temper::reports
