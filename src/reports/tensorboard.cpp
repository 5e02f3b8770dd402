#include "reports/tensorboard.h"

#include <unistd.h>

#include <bit>
#include <chrono>
#include <cstring>

#include "base/error.h"
#include "reports/crc32c.h"

static_assert(std::endian::native == std::endian::little, "event files are little-endian");

namespace temper::reports {
namespace {

// Field numbers of TensorFlow's event.proto and summary.proto.
enum EventField : uint32_t { kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7 };
enum SummaryField : uint32_t { kValue = 1 };
enum ValueField : uint32_t { kTag = 1, kSimpleValue = 2 };
enum SessionField : uint32_t { kStatus = 1 };
constexpr uint64_t kSessionStart = 1;

template <class T>
std::string bytes_of(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

// A protocol buffer message, built front to back.
class Message {
 public:
  void add_integer(uint32_t field, uint64_t value) {
    add_varint(field << 3);
    add_varint(value);
  }
  void add_double(uint32_t field, double value) {
    add_varint(field << 3 | 1);
    bytes_ += bytes_of(value);
  }
  void add_text(uint32_t field, const std::string& value) {
    add_varint(field << 3 | 2);
    add_varint(value.size());
    bytes_ += value;
  }
  void add_float(uint32_t field, float value) {
    add_varint(field << 3 | 5);
    bytes_ += bytes_of(value);
  }
  const std::string& bytes() const { return bytes_; }

 private:
  void add_varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }
  std::string bytes_;
};

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

Message event_at(int64_t step, double wall_time) {
  Message event;
  event.add_double(kWallTime, wall_time);
  event.add_integer(kStep, static_cast<uint64_t>(step));
  return event;
}

std::string new_path(const std::string& folder, double now) {
  char host[256] = "localhost";
  if (::gethostname(host, sizeof host - 1) != 0) std::strcpy(host, "localhost");
  const std::string path =
      join_path(folder, fmt::format("events.out.tfevents.{}.{}", static_cast<int64_t>(now), host));
  if (!exists(path)) return path;
  int number = 1;  // a second writer within one second
  while (exists(fmt::format("{}.{}", path, number))) ++number;
  return fmt::format("{}.{}", path, number);
}

}  // namespace

TensorBoardWriter::TensorBoardWriter(const std::string& folder, int64_t first_step) {
  make_directories(folder);
  const double now = seconds_since_1970();
  path_ = new_path(folder, now);
  file_ = std::make_unique<FileWriter>(path_);
  Message header = event_at(0, now);
  header.add_text(kFileVersion, "brain.Event:2");
  write_record(header.bytes());
  if (first_step <= 0) return;
  Message session;
  session.add_integer(kStatus, kSessionStart);
  Message restart = event_at(first_step, now);
  restart.add_text(kSessionLog, session.bytes());
  write_record(restart.bytes());
}

void TensorBoardWriter::write(int64_t step, const Scalars& scalars) {
  write(step, scalars, seconds_since_1970());
}

void TensorBoardWriter::write(int64_t step, const Scalars& scalars, double wall_time) {
  Message summary;
  for (const auto& [tag, number] : scalars) {
    Message value;
    value.add_text(kTag, tag);
    value.add_float(kSimpleValue, static_cast<float>(number));
    summary.add_text(kValue, value.bytes());
  }
  Message event = event_at(step, wall_time);
  event.add_text(kSummary, summary.bytes());
  write_record(event.bytes());
}

void TensorBoardWriter::write_record(const std::string& event) {
  const std::string length = bytes_of(static_cast<uint64_t>(event.size()));
  file_->write(length + bytes_of(masked_crc32c(length)) + event + bytes_of(masked_crc32c(event)));
}

void TensorBoardWriter::close() { file_->close(); }

}  // namespace temper::reports
