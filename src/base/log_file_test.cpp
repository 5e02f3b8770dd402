#include "base/log_file.h"

#include <gtest/gtest.h>

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
    log.open(path);
    log_warning("after");
    log_quietly("for the file alone");
  }
  log_info("not kept either");
  EXPECT_EQ(read_file(path), "before\nwarning: after\nfor the file alone\n");
  {
    LogFile log;
    log.open(path);
    log_info("again");
  }
  EXPECT_EQ(read_file(path), "before\nwarning: after\nfor the file alone\nagain\n");
}

TEST(LogFile, ThatCannotBeWrittenStopsNothing) {
  const TemporaryDirectory folder;
  LogFile log;
  log.open(folder / "no/such/folder/console.log");
  log_info("said all the same");
}

}  // namespace
}  // namespace temper
