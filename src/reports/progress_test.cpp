#include "reports/progress.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/files.h"
#include "base/log.h"

namespace temper::reports {
namespace {

StepReport full_report() {
  return {.step = 12,
          .total_steps = 100,
          .loss = 2.31449,
          .epoch = 0.4766,
          .lr = 2e-5,
          .grad_norm = 1.2345,
          .tokens_per_second = 12345,
          .mfu = 0.4321,
          .memory_bytes = int64_t{3} << 29,
          .seconds_left = 3725,
          .extras = {{"reward", 0.25}, {"length", 310}}};
}

// What a Progress wrote to its file.
class Recorded {
 public:
  ~Recorded() { std::fclose(file_); }
  ProgressOptions options(bool terminal) {
    ProgressOptions options;
    options.out = file_;
    options.terminal = terminal;
    options.width = 40;
    return options;
  }
  std::string text() const { return read_file(path_); }

 private:
  TemporaryDirectory folder_;
  std::string path_ = folder_ / "out";
  std::FILE* file_ = std::fopen(path_.c_str(), "w");
};

StepReport at(int64_t step) { return {.step = step, .total_steps = 100, .loss = 1}; }

TEST(FormatStep, ShowsWhatIsKnown) {
  EXPECT_EQ(
      format_step(full_report()),
      "step 12/100  epoch 0.48  loss 2.3145  reward 0.25  length 310  lr 2.0e-05  grad 1.23  12.3k tok/s  "
      "MFU 43%  1.50 GiB  1h 02m left");
  EXPECT_EQ(format_step({.step = 3, .loss = 1}), "step 3  loss 1.0000");
  EXPECT_EQ(format_step({.step = 3, .loss = NAN, .grad_norm = INFINITY}), "step 3  loss nan  grad inf");
}

TEST(FormatStep, LeavesOutWhatMattersLeast) {
  const StepReport report = full_report();
  for (size_t width = 1; width < 150; ++width) EXPECT_LE(format_step(report, width).size(), width);
  EXPECT_EQ(format_step(report, 40), "step 12/100 loss 2.3145 1h 02m left");
  EXPECT_EQ(format_step(report, 50), "step 12/100 loss 2.3145 reward 0.25 1h 02m left");
  EXPECT_EQ(format_step(report, 30), "step 12/100 loss 2.3145");
  EXPECT_EQ(format_step(report, 9), "step 12/1");
}

TEST(Progress, WritesPlainLinesNowAndThen) {
  Recorded recorded;
  Progress progress(recorded.options(false));
  for (int64_t step = 1; step <= 100; ++step) progress.show(at(step), 0.5 * static_cast<double>(step));
  progress.finish();
  EXPECT_EQ(recorded.text(),
            "step 1/100  loss 1.0000\nstep 21/100  loss 1.0000\nstep 41/100  loss 1.0000\n"
            "step 61/100  loss 1.0000\nstep 81/100  loss 1.0000\nstep 100/100  loss 1.0000\n");
}

TEST(Progress, RedrawsOneLineOnATerminal) {
  Recorded recorded;
  {
    Progress progress(recorded.options(true));
    progress.show(at(1), 0);
    progress.show(at(2), 0.05);  // too soon
    progress.show(at(3), 0.2);
  }
  EXPECT_EQ(recorded.text(), "\r\x1b[Kstep 1/100  loss 1.0000\r\x1b[Kstep 3/100  loss 1.0000\n");
}

TEST(Progress, TheLastStepStaysOnATerminal) {
  Recorded recorded;
  testing::internal::CaptureStderr();
  {
    Progress progress(recorded.options(true));
    progress.show(at(99), 0);
    progress.show(at(100), 0.01);
    log_info("eval loss 2");  // below it, not over it
  }
  EXPECT_EQ(recorded.text(), "\r\x1b[Kstep 99/100  loss 1.0000\r\x1b[Kstep 100/100  loss 1.0000\n");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "eval loss 2\n");
}

TEST(Progress, LogLinesClearTheLiveLine) {
  Recorded recorded;
  testing::internal::CaptureStderr();
  {
    Progress progress(recorded.options(true));
    progress.show(at(1), 0);
    log_info("hello");
  }
  log_info("bye");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "\r\x1b[Khello\nbye\n");
}

TEST(Progress, TheLogsCopyEndsWithTheLastStep) {
  for (const bool terminal : {false, true}) {
    Recorded recorded;
    std::string copy;
    set_log_copy([&](std::string_view line) { copy += line; });
    {
      Progress progress(recorded.options(terminal));
      progress.show(at(1), 5);
      progress.show(at(2), 6);
      progress.show(at(3), 7);
      progress.finish();
    }
    set_log_copy(nullptr);
    EXPECT_EQ(copy, "step 1/100  loss 1.0000\nstep 3/100  loss 1.0000\n");
  }
}

}  // namespace
}  // namespace temper::reports
