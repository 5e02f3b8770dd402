// Many connections at once: idle, slow and hostile ones delay no other.
#include <malloc.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <random>

#include "exchange/raw_sender.h"
#include "tests/support/sanitizers.h"

namespace temper::exchange {
namespace {

// The number of descriptors that this process may have, until the end of its life.
class DescriptorLimit {
 public:
  DescriptorLimit() { ::getrlimit(RLIMIT_NOFILE, &usual_); }
  ~DescriptorLimit() { reset(); }
  void set(rlim_t count) const {
    const rlimit other{std::min(count, usual_.rlim_max), usual_.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &other), 0);
  }
  void reset() const { ::setrlimit(RLIMIT_NOFILE, &usual_); }

 private:
  rlimit usual_{};
};

double processor_seconds() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

void wait_for(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

class Connections : public Exchange {
 protected:
  void begin_with(ReceiverOptions options) {
    begin();
    receiver_.reset();
    receiver_ = std::make_unique<Receiver>(socket(), store(), options);
  }
  std::unique_ptr<Connection> connect(double deadline_seconds = 20) {
    return std::make_unique<Connection>(connect_to(socket(), 20), "the receiver", deadline_seconds);
  }
  static void connect_socket(int file, const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    ASSERT_EQ(::connect(file, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }
  static std::string error_in(Connection& connection) {
    return connection.receive().json.at("error").as_string();
  }
  static void write(const Connection& connection, const std::string& bytes) {
    ASSERT_EQ(::send(connection.socket(), bytes.data(), bytes.size(), MSG_NOSIGNAL), std::ssize(bytes));
  }
  static std::string announced(uint32_t length, const std::string& text = "") {
    std::string all(sizeof length, '\0');
    std::memcpy(all.data(), &length, sizeof length);
    return all + text;
  }
};

TEST_F(Connections, IdleAndSlowOnesDoNotDelayOthers) {
  const DescriptorLimit limit;
  limit.set(4096);
  begin();
  std::vector<std::unique_ptr<Connection>> idle, slow;
  std::vector<std::unique_ptr<RawSender>> greeted;
  for (int i = 0; i < 450; ++i) idle.push_back(connect());
  for (int i = 0; i < 50; ++i) greeted.push_back(std::make_unique<RawSender>(socket(), table()));
  for (int i = 0; i < 10; ++i) slow.push_back(connect());
  std::atomic<bool> done = false;
  auto dripping = std::async(std::launch::async, [&] {
    const std::string hello = hello_message(table()).dump();
    const std::string bytes = announced(static_cast<uint32_t>(hello.size()) + 50000, hello);
    for (size_t at = 0; at < bytes.size() && !done; ++at, wait_for(0.002))
      for (const auto& each : slow) write(*each, bytes.substr(at, 1));
  });
  for (const int64_t version : {1, 2, 3}) expect_next_sync(version);
  done = true;
  dripping.get();
  greeted.front()->begin(4);  // who was idle may still send
}

TEST_F(Connections, EachHasItsDeadline) {
  begin("qwen3", DType::kF32, 0.3);
  const auto idle = connect(), half = connect();
  const RawSender greeted(socket(), table());
  write(*half, "abc");
  const double before = seconds_now();
  expect_has(error_in(*idle), "the sender sent nothing for 0.3 s");
  expect_has(error_in(*half), "the sender did not send the rest of its message within 0.3 s");
  EXPECT_GT(seconds_now() - before, 0.1);
  EXPECT_LT(seconds_now() - before, 5);
  expect_old("", "");
}

// Bytes that come now and then do not make a message last longer.
TEST_F(Connections, AMessageHasOneDeadlineFromItsFirstByteOn) {
  begin("qwen3", DType::kF32, 0.3);
  const auto slow = connect();
  const double before = seconds_now();
  bool ended = false;
  for (write(*slow, announced(20000)); !ended && seconds_now() < before + 10; wait_for(0.02))
    ended = ::send(slow->socket(), "a", 1, MSG_NOSIGNAL) < 0;
  EXPECT_TRUE(ended);
  EXPECT_LT(seconds_now() - before, 5);
}

// Who asks and asks, and reads nothing.
TEST_F(Connections, AnAnswerThatIsNotReadHoldsNobodyUp) {
  begin("qwen3", DType::kF32, 0.5);
  RawSender deaf(socket(), table());
  Outbox questions("the receiver");
  for (int i = 0; i < 20000; ++i) questions.put(Json::Object{{"type", "hashes"}});
  const double before = seconds_now();
  bool ended = false;
  while (!ended && seconds_now() < before + 10) {
    ended = failure_of([&] { questions.write(deaf.connection().socket()); }) != "";
    if (taken_.empty()) expect_next_sync(3);
    wait_for(0.02);
  }
  EXPECT_TRUE(ended);
  EXPECT_LT(seconds_now() - before, 5);
}

// At its end a receiver gives those who read slowly a moment to take their answers, the last of which may be
// that they are too slow.
TEST_F(Connections, AReceiverThatEndsLetsAnswersGoOut) {
  enum class Client { kSleeps, kDies, kReads, kReadsLate };
  for (const Client client : {Client::kSleeps, Client::kDies, Client::kReads, Client::kReadsLate}) {
    const bool late = client == Client::kReadsLate, reads = late || client == Client::kReads;
    begin("qwen3", DType::kF32, late ? 1 : 20);
    auto slow = std::make_unique<RawSender>(socket(), table());
    Outbox questions("the receiver");
    for (int i = 0; i < 2000; ++i) questions.put(Json::Object{{"type", "hashes"}});
    questions.write(slow->connection().socket());
    wait_for(late ? 1.5 : 0.3);  // until there is no room for further answers
    const double before = seconds_now();
    auto ending = std::async(std::launch::async, [&] { receiver_.reset(); });
    wait_for(0.2);  // less than it waits for those who read
    std::vector<Json> answers;
    std::string end;
    while (reads && end.empty())
      end = failure_of([&] { answers.push_back(slow->connection().receive().json); });
    if (client == Client::kDies) slow.reset();
    ending.get();
    EXPECT_LT(seconds_now() - before, 5);
    if (!reads) continue;
    ASSERT_GT(answers.size(), 10u);
    for (size_t i = 0; i + 1 < answers.size(); ++i) EXPECT_NE(answers[i].find("parameters"), nullptr);
    expect_has(answers.back().at("error").as_string(),
               late ? "did not take its answer within 1.0 s" : "the receiver has ended");
    expect_has(end, "closed the connection");
  }
}

// A sync ends with the rank that is gone, and the others hear why, however late.
TEST_F(Connections, ARankOfASyncThatHasEndedHearsWhy) {
  begin("qwen3", DType::kF32, 0.4);
  RawSender second(socket(), table(), 1, 2);
  {
    RawSender first(socket(), table(), 0, 2);
    first.begin();
    second.begin();
  }
  expect_has(error_in(second.connection()),
             "version 1 ended before all of it had come: [weights] the sender closed the connection");
  expect_old("", "");
}

TEST_F(Connections, WithoutDescriptorsNothingBegins) {
  if (kSanitizerTakesMemory) GTEST_SKIP() << "a sanitizer needs descriptors for its own checks";
  begin();
  const DescriptorLimit limit;
  const auto failure_with = [&](rlim_t descriptors, const std::function<void()>& act) {
    const int next = ::dup(0);
    ::close(next);
    limit.set(static_cast<rlim_t>(next) + descriptors);
    const std::string error = failure_of(act);
    limit.reset();
    return error;
  };
  expect_has(failure_with(0, [&] { connect_to(socket(), 1); }), "no socket can be had: Too many open files");
  expect_has(failure_with(0, [] { SharedMemory(4096); }),
             "4.00 KiB of shared memory cannot be had: Too many open files");
  const std::string other = files_ / "other.sock";
  expect_has(failure_with(1, [&] { Receiver(other, store()); }),
             "no descriptor can be had for the thread that takes weights");
  EXPECT_FALSE(exists(other));
  expect_next_sync(1);
}

TEST_F(Connections, BeyondTheBoundTheOneThatIsIdleLongestIsClosed) {
  begin_with({.deadline_seconds = 20, .most_connections = 8});
  RawSender sending(socket(), table(), 0, 2);
  sending.begin(1);
  std::vector<std::unique_ptr<Connection>> idle;
  for (int i = 0; i < 10; ++i) idle.push_back(connect());
  for (int i = 0; i < 3; ++i)
    expect_has(error_in(*idle[static_cast<size_t>(i)]), "has 8 connections and no room for more");
  sending.update_norm(0, 8);  // this one has begun a sync
  idle.back()->send(hello_message(table()));
  EXPECT_EQ(idle.back()->receive().json.find("error"), nullptr);
  expect_next_sync(2);
}

// A connection that sends is never closed: others wait until there is room.
TEST_F(Connections, WhereAllSendOthersWait) {
  begin_with({.deadline_seconds = 20, .most_connections = 2});
  auto first = std::make_unique<RawSender>(socket(), table(), 0, 3);
  RawSender second(socket(), table(), 1, 3);
  first->begin(1);
  second.begin(1);
  const auto waiting = connect();
  waiting->send(hello_message(table()));
  const double before = processor_seconds();
  wait_for(0.4);
  EXPECT_LT(processor_seconds() - before, 0.2);
  pollfd answered{waiting->socket(), POLLIN, 0};
  EXPECT_EQ(::poll(&answered, 1, 0), 0);
  second.update_norm(0, 8);
  first.reset();
  EXPECT_EQ(waiting->receive().json.find("error"), nullptr);
  const RawSender late(socket(), table());  // the sync has ended, so that the second has no part in one
  expect_has(error_in(second.connection()), "no room for more");
}

TEST_F(Connections, WithoutDescriptorsTheOneThatIsIdleLongestIsClosed) {
  if (kSanitizerTakesMemory) GTEST_SKIP() << "a sanitizer needs descriptors for its own checks";
  begin();
  const std::string path = socket();
  const DescriptorLimit limit;
  const device::Descriptor next(::dup(0));
  std::vector<std::unique_ptr<Connection>> idle;
  limit.set(static_cast<rlim_t>(next.get()) + 40);
  std::vector<int> sockets;
  for (int i = 0; i < 30; ++i) sockets.push_back(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  for (const int each : sockets) {  // of which the receiver has descriptors for a third
    connect_socket(each, path);
    idle.push_back(std::make_unique<Connection>(each, "the receiver", 5));
  }
  for (const size_t i : {0, 1, 18})
    expect_has(error_in(*idle[i]), "no room for more; this one was idle longest");
  idle.resize(idle.size() - 6);
  expect_next_sync(1);
}

TEST_F(Connections, AReceiverWithoutADescriptorDoesNotSpin) {
  if (kSanitizerTakesMemory) GTEST_SKIP() << "a sanitizer needs descriptors for its own checks";
  begin();
  const std::string path = socket();
  const DescriptorLimit limit;
  const int client = connect_to(socket(), 20);
  wait_for(0.05);
  const device::Descriptor next(::dup(0));
  const int late = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_GE(late, 0);
  limit.set(static_cast<rlim_t>(late) + 1);
  std::vector<device::Descriptor> all;
  for (int file = ::dup(0); file >= 0; file = ::dup(0)) all.emplace_back(file);
  ::close(client);  // of the only connection, whose place is taken at once
  wait_for(0.05);
  for (int file = ::dup(0); file >= 0; file = ::dup(0)) all.emplace_back(file);
  connect_socket(late, path);
  const double before = processor_seconds();
  wait_for(0.4);
  EXPECT_LT(processor_seconds() - before, 0.2);
  all.clear();
  limit.reset();
  Connection waiting(late, "the receiver", 5);
  waiting.send(hello_message(table()));
  EXPECT_EQ(waiting.receive().json.find("error"), nullptr);
}

int64_t allocated_bytes_here() {
  const auto info = ::mallinfo2();
  return static_cast<int64_t>(info.uordblks + info.hblkhd);
}

TEST_F(Connections, HostileBytesTakeLittleMemoryAndEndNothing) {
  begin();
  std::mt19937 random(11);
  const auto some = [&](size_t count) {
    std::string bytes(count, '\0');
    for (char& each : bytes) each = static_cast<char>(random());
    return bytes;
  };
  std::vector<std::unique_ptr<Connection>> all;
  std::vector<std::unique_ptr<RawSender>> greeted;
  const int64_t before = allocated_bytes_here();
  for (int i = 0; i < 200; ++i) {
    all.push_back(connect());
    const std::string bytes = i % 4 == 0   ? some(500)
                              : i % 4 == 1 ? announced(60000, some(100))  // a message that does not end
                              : i % 4 == 2 ? announced(300, some(300))
                                           : some(1 + static_cast<size_t>(i) % 4);
    write(*all.back(), bytes);
  }
  for (int i = 0; i < 20; ++i) {
    greeted.push_back(std::make_unique<RawSender>(socket(), table()));
    write(greeted.back()->connection(), announced(kLargestMessage, std::string(20000, '[')));
  }
  const auto early = connect();  // before hello little is taken
  write(*early, announced(1 << 20));
  expect_has(error_in(*early), "sent a message of 1048576 bytes, at most ");
  expect_next_sync(1);
  EXPECT_LT(allocated_bytes_here() - before, int64_t{20} << 20);
}

// Of this thread alone, as the system sees it.
void become(uid_t user) { ASSERT_EQ(::syscall(SYS_setresuid, -1, user, -1), 0); }

TEST_F(Connections, AnotherUsersProcessIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root may become another user";
  constexpr uid_t kOther = 65534;
  // Others may not look into what TMPDIR names.
  std::string folder = "/tmp/temper.XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  ASSERT_EQ(::chmod(folder.c_str(), 0755), 0);
  socket_folder_ = folder;
  begin();
  ASSERT_EQ(::chmod(socket().c_str(), 0666), 0);
  become(kOther);
  const auto foreign = connect();
  become(0);
  expect_has(error_in(*foreign), "the sender is a process of user 65534, this one is of user 0");
  expect_old("", "");
  receiver_.reset();
  ASSERT_EQ(::chmod(folder.c_str(), 0777), 0);
  {
    become(kOther);
    const Listener listener(socket());
    become(0);
    expect_has(failure_of([&] { Sender(socket(), table()); }),
               "the receiver is a process of user 65534, this one is of user 0");
  }
  remove_all(folder);
}

}  // namespace
}  // namespace temper::exchange
