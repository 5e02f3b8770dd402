#include "formats/row_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "formats/claim.h"
#include "formats/test_support.h"
#include "tests/support/errors.h"

namespace temper::formats {
namespace {

std::atomic<int> conversions;
int64_t least = 0;

// "PLAIN" and what follows it, slowly enough for others to come.
Conversion plain() {
  return {.recognizes = [](std::string_view content) { return content.starts_with("PLAIN"); },
          .least_bytes = [](const PackedFile&) { return least; },
          .convert =
              [](const PackedFile& file, RowWriter& rows) {
                ++conversions;
                std::this_thread::sleep_for(std::chrono::milliseconds(100));
                if (file.all().ends_with("KILLED")) ::_exit(9);
                rows.write(file.all().substr(5));
                if (file.all().ends_with("BROKEN")) fail("[{}] is broken", file.path());
              }};
}

class RowCache : public CacheTest {
 protected:
  RowCache() {
    conversions = 0;
    least = 0;
    if (registry<Conversion>().find("plain") == nullptr) registry<Conversion>().add("plain", plain());
  }
};

TEST_F(RowCache, ConvertsOnceForAContent) {
  const WrittenFile file("PLAIN{\"a\":1}\n\n{\"a\":2}\n");
  const auto first = file.open();
  EXPECT_EQ(rows_of(*first), (std::vector<std::string>{"{\"a\":1}", "{\"a\":2}"}));
  EXPECT_EQ(first->place(1), file.path() + ":3");
  const WrittenFile same(read_file(file.path()), "elsewhere");
  EXPECT_EQ(same.open()->hash(), first->hash());
  EXPECT_EQ(same.open()->place(0), same.path() + ":1");
  EXPECT_EQ(conversions, 1);
  EXPECT_EQ(cached().size(), 1U);
  write_file(file.path(), "PLAIN{\"a\":3}\n\n{\"a\":2}\n");
  EXPECT_EQ(file.open()->text(0), "{\"a\":3}");
  EXPECT_EQ(conversions, 2);
  EXPECT_EQ(cached().size(), 2U);
}

TEST_F(RowCache, DamagedRowsAreMadeAgain) {
  const WrittenFile file("PLAIN[\n{\"a\":1},\n{\"a\":2}\n]");
  const auto rows = rows_of(*file.open());
  for (const char* damage : {"[\n{\"a\":1},\n{\"a\":3}\n]", "[\n{\"a\":1}", "", "\n\n"}) {
    write_file(cached_path(), damage);
    EXPECT_EQ(rows_of(*file.open()), rows) << damage;
    EXPECT_EQ(rows_of(*file.open()), rows) << damage;
    EXPECT_EQ(cached().size(), 1U);
  }
  EXPECT_EQ(conversions, 5);
}

TEST_F(RowCache, BrokenFilesLeaveNothingBehind) {
  const WrittenFile broken("PLAIN{\"a\":1}\nBROKEN");
  EXPECT_EQ(error_of([&] { broken.open(); }), fmt::format("[{}] is broken", broken.path()));
  EXPECT_TRUE(cached().empty());
  const WrittenFile document("PLAIN[{\"a\":1}");
  expect_has(error_of([&] { document.open(); }), fmt::format("[{}:1:9] not valid JSON", document.path()));
}

TEST_F(RowCache, AKilledWriterIsSweptUp) {
  const WrittenFile killed("PLAIN{\"a\":1}\nKILLED");
  const pid_t child = ::fork();
  if (child == 0) {
    killed.open();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_EQ(WEXITSTATUS(status), 9);
  ASSERT_EQ(cached().size(), 1U);
  EXPECT_TRUE(cached()[0].ends_with(".tmp"));
  WrittenFile("PLAIN{}\n").open();
  ASSERT_EQ(cached().size(), 1U);
  EXPECT_FALSE(cached()[0].ends_with(".tmp"));
}

TEST_F(RowCache, WhatIsBeingWrittenStays) {
  make_directories(row_cache_folder());
  const std::string path = join_path(row_cache_folder(), "other.tmp");
  const Claim claim(path, "other");
  WrittenFile("PLAIN{}\n").open();
  EXPECT_TRUE(exists(path));
}

TEST_F(RowCache, RowsThatNobodyUsesGo) {
  const WrittenFile old("PLAIN{\"old\":1}\n"), used("PLAIN{\"used\":1}\n");
  const auto age = [&](const WrittenFile& file, int64_t days) {
    file.open();
    for (const std::string& name : cached()) {
      const std::string path = join_path(row_cache_folder(), name);
      if (read_file(path) != read_file(file.path()).substr(5)) continue;
      const timespec then{std::time(nullptr) - days * 24 * 3600, 0};
      const timespec times[2] = {then, then};
      ::utimensat(AT_FDCWD, path.c_str(), times, 0);
    }
  };
  age(old, 31);
  age(used, 31);
  used.open();
  WrittenFile("PLAIN{\"new\":1}\n").open();
  EXPECT_EQ(cached().size(), 2U);
  conversions = 0;
  used.open();
  EXPECT_EQ(conversions, 0);
  old.open();
  EXPECT_EQ(conversions, 1);
}

TEST_F(RowCache, OneOfManyConverts) {
  const WrittenFile file("PLAIN{\"a\":1}\n{\"a\":2}\n");
  std::vector<std::thread> threads;
  std::atomic<int> right = 0;
  for (int i = 0; i < 6; ++i) threads.emplace_back([&] { right += file.open()->text(1) == "{\"a\":2}"; });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 6);
  EXPECT_EQ(conversions, 1);
  EXPECT_EQ(cached().size(), 1U);
}

TEST_F(RowCache, OneOfManyProcessesConverts) {
  const WrittenFile file("PLAIN{\"a\":1}\n{\"a\":2}\n");
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    children.push_back(::fork());
    if (children.back() == 0) ::_exit(file.open()->size() == 2 ? conversions.load() : 100);
  }
  int made = 0;
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    made += WEXITSTATUS(status);
  }
  EXPECT_EQ(made, 1);
  EXPECT_EQ(cached().size(), 1U);
}

TEST_F(RowCache, TooLittleSpaceIsSaidBeforeWriting) {
  const WrittenFile file("PLAIN{}\n");
  least = int64_t{1} << 60;
  const std::string message = error_of([&] { file.open(); }, ErrorKind::kResources);
  expect_has(message, fmt::format("[{}] its rows take at least 1024.00 PiB in {}, where ", file.path(),
                                  row_cache_folder()));
  expect_has(message, "set XDG_CACHE_HOME");
  EXPECT_EQ(conversions, 0);
  EXPECT_TRUE(cached().empty());
}

TEST_F(RowCache, ACacheThatCannotBeWritten) {
  const WrittenFile file("PLAIN{}\n"), other("PLAIN{\"a\":1}\n");
  file.open();
  const std::string folder = row_cache_folder();
  if (::geteuid() == 0) {  // root writes everywhere but to what is no folder
    rename_path(folder, folder + ".moved");
    write_file(folder, "");
  } else {
    ::chmod(folder.c_str(), 0555);
    EXPECT_EQ(file.open()->size(), 1);  // what is there is used
  }
  const std::string message = error_of([&] { other.open(); });
  expect_has(message, fmt::format("[{}] its rows cannot be kept: [{}", other.path(), folder));
  expect_has(message, "XDG_CACHE_HOME names another folder for them");
  ::chmod(folder.c_str(), 0755);
}

TEST(RowWriterTest, AFullDiskNamesTheFileAndTheRemedy) {
  if (!exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  RowWriter writer("/dev/full", "data.jsonl.gz");
  const std::string message = error_of([&] { writer.write("{}\n"); }, ErrorKind::kResources);
  expect_has(message,
             "[data.jsonl.gz] its rows cannot be kept: [/dev/full] cannot write: No space left on device");
  expect_has(message, "XDG_CACHE_HOME");
}

}  // namespace
}  // namespace temper::formats
