#include "base/json/shared_json.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/files.h"
#include "base/process.h"

namespace temper {
namespace {

// Runs `work` in a process of its own; whether it ended well.
template <class F>
pid_t start_process(F work) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  try {
    work();
  } catch (...) {
    ::_exit(1);
  }
  ::_exit(0);
}

bool ended_well(pid_t process) {
  int status = 0;
  return ::waitpid(process, &status, 0) == process && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(SharedJson, WhatTwoProcessesChangeIsMerged) {
  constexpr int kEntries = 50;
  const TemporaryDirectory folder;
  const std::string file = folder / "cache/measured.json";
  std::vector<pid_t> processes;
  for (const char* name : {"a", "b"})
    processes.push_back(start_process([&] {
      for (int i = 0; i < kEntries; ++i) {
        update_shared_json(file, "numbers",
                           [&](Json& object) { object.set(fmt::format("{}{}", name, i), i); });
        Json::parse_file(file);  // never torn, whoever writes
      }
    }));
  for (const pid_t process : processes) EXPECT_TRUE(ended_well(process));
  const Json all = Json::parse_file(file);
  EXPECT_EQ(all.as_object().size(), 2u * kEntries);
  for (int i = 0; i < kEntries; ++i)
    for (const char* name : {"a", "b"}) EXPECT_EQ(all.at(fmt::format("{}{}", name, i)).as_int(), i);
  EXPECT_EQ(list_directory(folder / "cache"),
            (std::vector<std::string>{"measured.json", "measured.json.lock"}));
}

TEST(SharedJson, ABrokenFileIsAHintLost) {
  const TemporaryDirectory folder;
  const std::string file = folder / "measured.json";
  EXPECT_TRUE(read_shared_json(file, "numbers").as_object().empty());
  for (const char* text : {"{\"a\": ", "[1]"}) {
    write_file(file, text);
    EXPECT_TRUE(read_shared_json(file, "numbers").as_object().empty());
    update_shared_json(file, "numbers", [](Json& object) { object.set("b", 2); });
    EXPECT_EQ(Json::parse_file(file), Json(Json::Object{{"b", 2}}));
  }
}

// Two processes write one file whole, one of them without end until it is killed.
TEST(WriteFile, OfTwoWritersOneWinsAndAKilledOneLeavesNothing) {
  const TemporaryDirectory folder;
  const std::string file = folder / "kernels.json", mine(1 << 16, 'm'), other(1 << 16, 'o');
  const pid_t process = start_process([&] {
    for (;;) write_file(file, other);
  });
  const auto is_whole = [&] {
    const std::string text = read_file(file);
    return text == mine || text == other;
  };
  for (int i = 0; i < 50; ++i) {
    EXPECT_NO_THROW(write_file(file, mine));
    EXPECT_TRUE(is_whole());
  }
  ::kill(process, SIGKILL);
  EXPECT_FALSE(ended_well(process));
  EXPECT_TRUE(is_whole());
  // What it was writing goes with the next write; what a live process writes stays.
  const pid_t gone = start_process([] {});
  EXPECT_TRUE(ended_well(gone));
  const auto name_of = [&](pid_t number) {
    ProcessName process = this_process();
    process.number = number;
    process.started = 0;
    return fmt::format("{}.tmp-1-{}", file, to_string(process));
  };
  const std::string left = name_of(gone), live = name_of(::getppid());
  for (const std::string& name : {left, live}) FileWriter(name).write("half");
  write_file(file, mine);
  EXPECT_EQ(list_directory(folder.path()), (std::vector<std::string>{"kernels.json", file_name(live)}));
}

TEST(WriteFile, LeavesNothingWhereItFails) {
  const TemporaryDirectory folder;
  make_directories(folder / "taken/inside");
  EXPECT_THROW(write_file(folder / "taken", "text"), Error);  // a folder cannot be replaced by a file
  EXPECT_EQ(list_directory(folder.path()), std::vector<std::string>{"taken"});
}

}  // namespace
}  // namespace temper
