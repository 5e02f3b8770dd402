#include "base/log_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "base/files.h"
#include "base/log.h"

namespace temper {
namespace {

TEST(LogFile, HoldsWhatWasLoggedBeforeAndAfterItIsOpened) {
  const TemporaryDirectory folder;
  const std::string path = folder / "console.log";
  log_info("not kept");
  {
    LogFile log;
    log_info("before");
    log.open(path, "first start");
    log_warning("after");
    log_quietly("for the file alone");
  }
  log_info("not kept either");
  EXPECT_EQ(read_file(path), "first start\nbefore\nwarning: after\nfor the file alone\n");
  {
    LogFile log;
    log_info("once more before");
    log.open(path, "second start");
    log_info("again");
  }
  EXPECT_EQ(read_file(path),
            "first start\nbefore\nwarning: after\nfor the file alone\n"
            "second start\nonce more before\nagain\n");
}

TEST(LogFile, ThatCannotBeWrittenStopsNothing) {
  const TemporaryDirectory folder;
  LogFile log;
  log.open(folder / "no/such/folder/console.log", "start");
  log_info("said all the same");
}

// Files may grow to this size while it lives: a disk that is full.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit small{bytes, before_.rlim_max};
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
    ::setrlimit(RLIMIT_FSIZE, &small);
  }
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int) = nullptr;
};

TEST(LogFile, SaysWhereAFullDiskLeftLinesOut) {
  const TemporaryDirectory folder;
  const std::string path = folder / "console.log";
  LogFile log;
  log.open(path, "start");
  log_quietly("first");
  {
    const FullDisk disk(15);
    log_quietly("cut in the middle");
    log_quietly("lost");
  }
  log_quietly("back");
  log_quietly("last");
  EXPECT_EQ(read_file(path),
            "start\nfirst\ncut\n--- lines are missing here: this file could not be written\nback\nlast\n");
}

TEST(LogFile, BeginsBehindALineThatAnotherProcessDidNotEnd) {
  const TemporaryDirectory folder;
  const std::string path = folder / "console.log";
  FileWriter(path).write("start\ncut");
  LogFile log;
  log_quietly("early");
  log.open(path, "again");
  EXPECT_EQ(read_file(path),
            "start\ncut\n--- lines are missing here: this file could not be written\nagain\nearly\n");
}

TEST(LogFile, LosesNothingToSignals) {
  const TemporaryDirectory folder;
  const std::string path = folder / "pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const int pipe = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(pipe, 0);
  struct sigaction before {
  }, noticed{};
  noticed.sa_handler = [](int) {};  // and no SA_RESTART
  ASSERT_EQ(::sigaction(SIGUSR1, &noticed, &before), 0);
  const size_t size = static_cast<size_t>(::fcntl(pipe, F_GETPIPE_SZ)) + 1000;
  const pthread_t writer = ::pthread_self();
  std::string got;
  std::thread reader([&] {
    // The writer waits in the full pipe, and is interrupted there before anything of it is read.
    for (int i = 0; i < 50; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      ::pthread_kill(writer, SIGUSR1);
    }
    char buffer[4096];
    pollfd ready{pipe, POLLIN, 0};
    while (::poll(&ready, 1, 500) > 0) {
      const ssize_t count = ::read(pipe, buffer, sizeof buffer);
      if (count > 0) got.append(buffer, static_cast<size_t>(count));
    }
  });
  {
    LogFile log;
    log.open(path, "start");
    log_quietly(std::string(size, 'x'));
    reader.join();
  }
  ::sigaction(SIGUSR1, &before, nullptr);
  ::close(pipe);
  EXPECT_TRUE(got == "start\n" + std::string(size, 'x') + "\n") << got.size() << " bytes";
}

}  // namespace
}  // namespace temper
