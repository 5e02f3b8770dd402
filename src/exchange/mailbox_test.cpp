// Messages that come and go in parts.
#include "exchange/mailbox.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <future>
#include <random>
#include <thread>

#include "base/files.h"
#include "exchange/connection.h"
#include "tests/support/errors.h"
#include "tests/support/sanitizers.h"

namespace temper::exchange {
namespace {

size_t count_descriptors() { return list_directory("/proc/self/fd").size(); }

int64_t allocated_bytes() {
  const auto info = ::mallinfo2();
  return static_cast<int64_t>(info.uordblks + info.hblkhd);
}

std::string framed(const std::string& text) {
  const auto length = static_cast<uint32_t>(text.size());
  std::string all(sizeof length, '\0');
  std::memcpy(all.data(), &length, sizeof length);
  return all + text;
}

struct Ends {
  Ends() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    there = device::Descriptor(ends[0]);
    here = device::Descriptor(ends[1]);
  }
  void write(const std::string& bytes) {
    ASSERT_EQ(::write(there.get(), bytes.data(), bytes.size()), std::ssize(bytes));
  }
  // Some bytes with descriptors, in one header or in several.
  void write_with(const std::string& bytes, size_t files, size_t headers = 1) {
    const device::Descriptor null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    const size_t each = files / headers, space = CMSG_SPACE(each * sizeof(int));
    std::vector<char> control(space * headers);
    iovec part{const_cast<char*>(bytes.data()), bytes.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    for (size_t i = 0; i < headers; ++i) {
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(each * sizeof(int));
      for (size_t f = 0; f < each; ++f) {
        const int file = null.get();
        std::memcpy(CMSG_DATA(header) + f * sizeof file, &file, sizeof file);
      }
      header = reinterpret_cast<cmsghdr*>(control.data() + space * (i + 1));
    }
    ASSERT_EQ(::sendmsg(there.get(), &message, 0), std::ssize(bytes));
  }
  std::string refusal(int64_t largest = kLargestMessage) {
    return error_of([&] { inbox.read(here.get(), largest); });
  }

  device::Descriptor there, here;
  Inbox inbox{"the sender"};
};

TEST(Mailbox, AMessageIsWholeWithItsLastByte) {
  Ends ends;
  const std::string bytes = framed(R"({"type": "hello"})");
  for (size_t i = 0; i + 1 < bytes.size(); ++i) {
    ends.write(bytes.substr(i, 1));
    EXPECT_FALSE(ends.inbox.read(ends.here.get()));
    EXPECT_FALSE(ends.inbox.is_empty());
    EXPECT_FALSE(ends.inbox.read(ends.here.get()));
  }
  ends.write(bytes.substr(bytes.size() - 1) + framed("{}") + "rest");
  const std::optional<Message> message = ends.inbox.read(ends.here.get());
  ASSERT_TRUE(message);
  EXPECT_EQ(message->json.at("type").as_string(), "hello");
  EXPECT_EQ(message->file.get(), -1);
  EXPECT_TRUE(ends.inbox.is_empty());
  EXPECT_TRUE(ends.inbox.read(ends.here.get()));
  std::array<char, 8> rest{};  // nothing behind a message has been read
  EXPECT_EQ(::read(ends.here.get(), rest.data(), rest.size()), 4);
}

TEST(Mailbox, TheOtherSideMayCloseBetweenTwoMessagesOnly) {
  Ends ends;
  ends.write(framed("{}"));
  EXPECT_TRUE(ends.inbox.read(ends.here.get()));
  EXPECT_FALSE(ends.inbox.is_closed());
  { const device::Descriptor closed = std::move(ends.there); }
  EXPECT_FALSE(ends.inbox.read(ends.here.get()));
  EXPECT_TRUE(ends.inbox.is_closed());
  for (const size_t bytes : {1, 4, 5}) {
    Ends half;
    half.write(framed("{}").substr(0, bytes));
    { const device::Descriptor closed = std::move(half.there); }
    EXPECT_FALSE(half.inbox.is_closed());
    const auto read = [&] {
      for (int i = 0; i < 2; ++i) half.inbox.read(half.here.get());
    };
    expect_has(error_of(read, ErrorKind::kResources), "closed the connection or died");
  }
}

TEST(Mailbox, OneDescriptorComesWithItsMessage) {
  Ends ends;
  const size_t before = count_descriptors();
  ends.write_with(framed("{}"), 1);
  {
    const std::optional<Message> message = ends.inbox.read(ends.here.get());
    ASSERT_TRUE(message);
    EXPECT_GE(::fcntl(message->file.get(), F_GETFD), 0);
    EXPECT_EQ(count_descriptors(), before + 1);
  }
  EXPECT_EQ(count_descriptors(), before);
}

// However they come, and whether or not the system has room to give all of them.
TEST(Mailbox, MoreDescriptorsAreRefusedAndClosed) {
  const size_t before = count_descriptors();
  for (const auto& [files, headers] : {std::pair<size_t, size_t>{2, 1}, {2, 2}, {3, 1}, {3, 3}, {253, 1}}) {
    Ends fresh;
    fresh.write_with(framed("{}"), files, headers);
    expect_has(fresh.refusal(), "more than one file descriptor");
  }
  for (const size_t cut : {1, 4, 5}) {  // the second with a later byte
    Ends fresh;
    fresh.write_with(framed("{}").substr(0, cut), 1);
    fresh.write_with(framed("{}").substr(cut), 1);
    expect_has(fresh.refusal(), "more than one file descriptor");
  }
  EXPECT_EQ(count_descriptors(), before);
}

TEST(Mailbox, WithoutAFreeDescriptorAMessageThatHasOneIsRefused) {
  if (kSanitizerTakesMemory) GTEST_SKIP() << "a sanitizer needs descriptors for its own checks";
  Ends ends;
  ends.write_with(framed("{}"), 1);
  rlimit usual{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &usual), 0);
  const device::Descriptor next(::dup(ends.here.get()));
  const rlimit none{static_cast<rlim_t>(next.get()), usual.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const std::string error = ends.refusal();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &usual), 0);
  expect_has(error, "or none is free here");
}

// A length is no reason to take memory: bytes are.
TEST(Mailbox, AnnouncedLengthsTakeNoMemory) {
  std::vector<std::unique_ptr<Ends>> all;
  const int64_t before = allocated_bytes();
  for (int i = 0; i < 40; ++i) {
    all.push_back(std::make_unique<Ends>());
    std::string bytes = framed("");
    const auto length = static_cast<uint32_t>(kLargestMessage);
    std::memcpy(bytes.data(), &length, sizeof length);
    all.back()->write(bytes + std::string(20000, '['));
    EXPECT_FALSE(all.back()->inbox.read(all.back()->here.get()));
  }
  EXPECT_LT(allocated_bytes() - before, 40 * 100000);
}

TEST(Mailbox, MessagesThatAreTooLargeAreRefusedAtTheirLength) {
  Ends ends;
  ends.write(framed("[0]"));
  expect_has(ends.refusal(2), "sent a message of 3 bytes, at most 2 are allowed");
  Ends huge;
  huge.write("\xff\xff\xff\xff");
  expect_has(huge.refusal(), "sent a message of 4294967295 bytes");
}

TEST(Mailbox, OnlyObjectsAreMessages) {
  for (const char* text : {"", "[1]", "7", "{", "{}}", "\"a\"", "{\"a\":1,\"a\":2}", "\xff"}) {
    Ends fresh;
    fresh.write(framed(text));
    EXPECT_NE(fresh.refusal(), "") << text;
  }
}

TEST(Mailbox, BytesOfAnyKindAreAnErrorAtMost) {
  std::mt19937 random(7);
  for (int i = 0; i < 500; ++i) {
    Ends fresh;
    std::string bytes(random() % 200 + 4, '\0');
    for (char& each : bytes) each = static_cast<char>(random());
    if (i % 2 == 0) bytes = framed(bytes);
    fresh.write(bytes);
    try {
      while (fresh.inbox.read(fresh.here.get())) {
      }
    } catch (const Error&) {
    }
  }
}

// What the socket does not take stays, in order.
TEST(Mailbox, AnAnswerGoesOutInParts) {
  Ends ends;
  Outbox outbox("the sender");
  const Json first = Json::Object{{"text", std::string(size_t{3} << 20, 'a')}},
             second = Json::Object{{"b", 1}};
  outbox.put(first);
  outbox.put(second);
  outbox.write(ends.here.get());
  EXPECT_FALSE(outbox.is_empty());
  std::vector<Json> came;
  while (came.size() < 2) {
    outbox.write(ends.here.get());
    if (std::optional<Message> message = ends.inbox.read(ends.there.get())) came.push_back(message->json);
  }
  EXPECT_TRUE(outbox.is_empty());
  EXPECT_EQ(came[0], first);
  EXPECT_EQ(came[1], second);
  { const device::Descriptor closed = std::move(ends.there); }
  outbox.put(second);
  expect_has(error_of([&] { outbox.write(ends.here.get()); }, ErrorKind::kResources),
             "closed the connection or died");
}

TEST(Mailbox, BothEndsAreOfOneUser) {
  Ends ends;
  EXPECT_EQ(error_of([&] { check_same_user(ends.here.get(), "it"); }), "");
  const device::Descriptor file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  expect_has(error_of([&] { check_same_user(file.get(), "it"); }, ErrorKind::kResources),
             "the system does not say whose process it is: ");
}

TEST(Mailbox, AMessageThatIsTooLargeDoesNotGoOut) {
  Outbox outbox("the receiver");
  const Json large = Json::Object{{"text", std::string(kLargestMessage, 'a')}};
  expect_has(error_of([&] { outbox.put(large); }),
             fmt::format("a message has {} bytes, at most {} are allowed; make the chunks smaller",
                         kLargestMessage + 12, kLargestMessage));
  EXPECT_TRUE(outbox.is_empty());
}

// An answer is waited for, whether it comes in parts or not any more.
TEST(Mailbox, AConnectionWaitsForAWholeAnswer) {
  Ends ends;
  Connection connection(::dup(ends.here.get()), "the receiver", 10);
  const std::string bytes = framed(R"({"a": 1})");
  auto writing = std::async(std::launch::async, [&] {
    for (const size_t cut : {size_t{0}, size_t{3}, size_t{6}}) {
      ends.write(bytes.substr(cut, cut == 6 ? std::string::npos : 3));
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
    }
    const device::Descriptor closed = std::move(ends.there);
  });
  EXPECT_EQ(connection.receive().json.dump(), R"({"a": 1})");
  expect_has(error_of([&] { connection.receive(); }, ErrorKind::kResources),
             "the receiver closed the connection or died before it had answered");
  writing.get();
}

}  // namespace
}  // namespace temper::exchange
