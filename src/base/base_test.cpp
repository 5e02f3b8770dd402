#include <fcntl.h>
#include <gtest/gtest.h>

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <chrono>

#include <array>
#include <atomic>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <latch>
#include <memory>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/process.h"
#include "base/random.h"
#include "base/signals/file_signals.h"
#include "base/text.h"
#include "base/threads/threads.h"
#include "base/waited.h"

namespace temper {
namespace {

TEST(Random, PhiloxMatchesPublishedVectors) {
  // Known-answer values from the Random123 distribution's kat_vectors.
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(Random, NormalHasUnitVariance) {
  const Random random(7, RandomPurpose::kInitialization);
  double sum = 0, squares = 0;
  constexpr int kCount = 20000;
  for (int i = 0; i < kCount; ++i) {
    const double x = random.normal(static_cast<uint64_t>(i));
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / kCount, 0, 0.03);
  EXPECT_NEAR(squares / kCount, 1, 0.05);
}

TEST(Random, PurposesAndStepsDiffer) {
  EXPECT_NE(Random(1, RandomPurpose::kShuffle).bits(0), Random(1, RandomPurpose::kSampling).bits(0));
  EXPECT_NE(Random(1, RandomPurpose::kShuffle, 1).bits(0), Random(1, RandomPurpose::kShuffle, 2).bits(0));
  for (uint64_t i = 0; i < 1000; ++i) EXPECT_LT(Random(3, RandomPurpose::kShuffle).below(7, i), 7u);
}

TEST(Threads, RunsEveryTaskOnceAndPassesExceptionsOn) {
  std::vector<int> seen(1000);
  parallel_for(1000, [&](int64_t i) { seen[static_cast<size_t>(i)]++; });
  for (const int count : seen) EXPECT_EQ(count, 1);
  EXPECT_THROW(parallel_for(100,
                            [](int64_t i) {
                              if (i == 50) fail("no");
                            }),
               Error);
}

TEST(Files, WriteIsReadBackAndReplaced) {
  const TemporaryDirectory folder;
  const std::string path = folder / "a.txt";
  write_file(path, "one");
  write_file(path, "two");
  EXPECT_EQ(read_file(path), "two");
  EXPECT_EQ(list_directory(folder.path()), std::vector<std::string>{"a.txt"});
  EXPECT_EQ(MappedFile(path).text(), "two");
  EXPECT_EQ(hash_file(path).size(), 32u);
}

TEST(Files, AFolderIsRemovedWithoutWhatItsLinksLeadTo) {
  const TemporaryDirectory folder;
  make_directories(folder / "kept");
  write_file(folder / "kept/a", "a");
  make_directories(folder / "gone/below/empty");
  write_file(folder / "gone/below/b", "b");
  ASSERT_EQ(::symlink((folder / "kept").c_str(), (folder / "gone/link").c_str()), 0);
  remove_all(folder / "gone");
  remove_all(folder / "gone");
  EXPECT_EQ(list_directory(folder.path()), std::vector<std::string>{"kept"});
  EXPECT_EQ(list_directory(folder / "kept"), std::vector<std::string>{"a"});
  remove_all(folder / "kept/a");
  EXPECT_TRUE(list_directory(folder / "kept").empty());
  EXPECT_THROW(list_directory(folder / "gone"), Error);
}

TEST(Files, MoreFilesAreMappedThanAShellAllowsAtFirst) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit small{64, before.rlim_max};
  if (before.rlim_max < 256 || ::setrlimit(RLIMIT_NOFILE, &small) != 0) GTEST_SKIP() << "the limit is low";
  const TemporaryDirectory folder;
  write_file(folder / "a", "text");
  std::vector<std::unique_ptr<MappedFile>> files;
  for (int i = 0; i < 128; ++i) files.push_back(std::make_unique<MappedFile>(folder / "a"));
  EXPECT_EQ(files.back()->text(), "text");
  EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
}

// All threads meet the limit at once, and only one of them can raise it.
TEST(Files, ThreadsThatMeetTheLimitTogetherAllGoOn) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  if (before.rlim_max < 256) GTEST_SKIP() << "the limit is low";
  const TemporaryDirectory folder;
  const std::string path = folder / "a";
  write_file(path, "text");
  const rlimit small{64, before.rlim_max};
  std::atomic<int> failed = 0;
  bool lowered = true;
  for (int round = 0; round < 100; ++round) {
    // The threads run before no file can be opened: a sanitizer opens some itself where a thread begins.
    std::latch running(8), together(1);
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i)
      threads.emplace_back([&] {
        running.count_down();
        together.wait();
        try {
          const MappedFile file(path);
        } catch (const Error&) {
          ++failed;
        }
      });
    running.wait();
    lowered = lowered && ::setrlimit(RLIMIT_NOFILE, &small) == 0;
    std::vector<int> taken;
    for (int file = ::open(path.c_str(), O_RDONLY); lowered && file >= 0;
         file = ::open(path.c_str(), O_RDONLY))
      taken.push_back(file);
    together.count_down();
    for (std::thread& thread : threads) thread.join();
    for (const int file : taken) ::close(file);
  }
  if (!lowered) GTEST_SKIP() << "the limit cannot be lowered";
  EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(failed, 0);
}

TEST(Files, APipeIsNotMapped) {
  const TemporaryDirectory folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_THROW(MappedFile(folder / "pipe"), Error);
}

TEST(Files, APipeThatNobodyReadsFromIsNotWaitedFor) {
  const TemporaryDirectory folder;
  const std::string path = folder / "pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_THROW(FileWriter{path}, Error);
  const int reader = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  ASSERT_GE(reader, 0);
  const std::string lines(size_t{1} << 18, 'x');  // more than a pipe holds
  size_t came = 0;
  std::thread slow([&] {
    std::array<char, 4096> text{};
    while (came < lines.size()) {
      const ssize_t size = ::read(reader, text.data(), text.size());
      if (size > 0) came += static_cast<size_t>(size);
      if (size <= 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  });
  FileWriter(path).write(lines);
  slow.join();
  EXPECT_EQ(came, lines.size());
  ::close(reader);
}

TEST(Files, AMappedFileThatIsWrittenToIsAnError) {
  const TemporaryDirectory folder;
  const std::string path = folder / "a.txt";
  write_file(path, "four");
  const MappedFile file(path);
  file.check_unchanged();
  write_file(path, "another file of that name");
  file.check_unchanged();  // the old one is still what was mapped
  const MappedFile other(path);
  FileWriter(path, true).write("more");
  EXPECT_THROW(other.check_unchanged(), Error);
}

// In a process of its own, as a program that reads what another one has cut off.
TEST(FilesDeathTest, AFileCutShortIsOneSentence) {
  const TemporaryDirectory folder;
  const std::string path = folder / "a.txt";
  write_file(path, std::string(1 << 20, 'a'));
  const auto read_what_is_gone = [&] {
    handle_file_signals();
    const MappedFile file(path);
    std::filesystem::resize_file(path, 0);
    std::exit(file.text()[1 << 19] == 'a' ? 0 : 1);
  };
  EXPECT_EXIT(read_what_is_gone(), testing::ExitedWithCode(2), "cut short by another program");
}

TEST(Files, ErrorsNameThePath) {
  try {
    read_file("/nonexistent/file");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    EXPECT_NE(std::string(error.what()).find("/nonexistent/file"), std::string::npos);
  }
}

TEST(Files, AFullDiskIsAResourceError) {
  if (!exists("/dev/full")) GTEST_SKIP() << "/dev/full, which refuses every write, is not here";
  try {
    FileWriter writer("/dev/full");
    writer.write("x");
    writer.close();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kResources);
  }
}

TEST(Text, NearestNameFindsTyposOnly) {
  EXPECT_EQ(nearest_name("lerning_rate", {"learning_rate", "epochs"}), "learning_rate");
  EXPECT_EQ(nearest_name("xyz", {"learning_rate", "epochs"}), "");
}

TEST(Text, NearestNameOfAnEndlessNameIsNone) {
  EXPECT_EQ(nearest_name(std::string(1 << 20, 'a'), {std::string(1 << 20, 'a') + "b", "b"}), "");
}

TEST(Text, LongListsAreCounted) {
  EXPECT_EQ(list_some({"a", "b"}), "a, b");
  EXPECT_EQ(list_some({"a", "b", "c", "d"}, "; ", 2), "a; b and 2 more");
}

TEST(Text, FormatsQuantities) {
  EXPECT_EQ(format_bytes(12), "12 B");
  EXPECT_EQ(format_bytes(3 << 29), "1.50 GiB");
  EXPECT_EQ(format_duration(187), "3m 07s");
}

TEST(Text, FindsInvalidUtf8) {
  EXPECT_EQ(valid_utf8_prefix("aé€😀"), 10u);
  EXPECT_EQ(valid_utf8_prefix("a\xc3"), 1u);
  EXPECT_EQ(valid_utf8_prefix("a\xed\xa0\x80"), 1u);     // surrogate
  EXPECT_EQ(valid_utf8_prefix("a\xc0\x80"), 1u);         // overlong
  EXPECT_EQ(valid_utf8_prefix("\xf4\x90\x80\x80"), 0u);  // above U+10FFFF
}

// A disk that is full in the middle of a file leaves neither a part of it nor a temporary file.
TEST(Files, AFailedWriteLeavesNothingBehind) {
  const TemporaryDirectory folder;
  write_file(folder / "kept", "old");
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{100'000, before.rlim_max};
  auto* const handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  for (const char* name : {"kept", "new"}) {
    try {
      write_file(folder / name, std::string(300'000, 'x'));
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kResources) << error.what();
    }
  }
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(list_directory(folder.path()), std::vector<std::string>{"kept"});
  EXPECT_EQ(read_file(folder / "kept"), "old");
}

TEST(Files, ALockNamesWhoHasIt) {
  const TemporaryDirectory folder;
  const FolderLock lock(folder.path());
  try {
    const FolderLock second(folder.path());
    ADD_FAILURE();
  } catch (const Error& error) {
    const ProcessName me = this_process();
    EXPECT_NE(std::string(error.what()).find(fmt::format("({} of host {})", me.number, me.host)),
              std::string::npos)
        << error.what();
  }
}

// A machine that slept, or a process that was stopped, has not waited.
TEST(Waited, CountsALongAbsenceAsOneLook) {
  Waited waited;
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const double short_wait = waited.seconds();
  EXPECT_GE(short_wait, 0.05);
  std::this_thread::sleep_for(std::chrono::milliseconds(1300));
  EXPECT_LE(waited.seconds() - short_wait, Waited::kLook);
}

}  // namespace
}  // namespace temper
