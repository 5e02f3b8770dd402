#include "reports/metrics.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"

namespace temper::reports {
namespace {

class MetricsTest : public testing::Test {
 protected:
  void write_steps(int64_t first, int64_t last, int64_t resumed_after = -1) {
    MetricsWriter writer(path_, resumed_after);
    for (int64_t step = first; step <= last; ++step)
      writer.write(step, {{"loss", 1.0 / static_cast<double>(step)}, {"tokens", step * 10}});
    writer.close();
  }

  TemporaryDirectory folder_;
  std::string path_ = folder_ / "metrics.jsonl";
};

TEST_F(MetricsTest, WritesOneObjectPerLineAtOnce) {
  MetricsWriter writer(path_);
  writer.write(1, {{"loss", 2.5}, {"note", "a\nb"}});
  EXPECT_EQ(read_file(path_), "{\"step\": 1, \"loss\": 2.5, \"note\": \"a\\nb\"}\n");
  writer.write(2, {{"loss", NAN}, {"list", Json::Array{1.5, INFINITY}}});
  EXPECT_EQ(Json::parse(read_file(path_).substr(41), "line").dump(),
            "{\"step\": 2, \"loss\": null, \"list\": [1.5, null]}");
  EXPECT_THROW(writer.write(3, {{"step", 3}}), Error);
}

TEST_F(MetricsTest, AResumedFileEqualsAnUninterruptedOne) {
  write_steps(1, 10);
  const std::string whole = read_file(path_);
  for (const char* torn : {"", "{\"step\": 8, \"lo", "{\"step\": 8}\nx\n", "{\"step\": 3}", "\n"}) {
    write_steps(1, 7);
    FileWriter tail(path_, /*append=*/true);
    tail.write(torn);
    tail.close();
    write_steps(6, 10, /*resumed_after=*/5);
    EXPECT_EQ(read_file(path_), whole) << torn;
  }
}

TEST_F(MetricsTest, AnEvaluationThatIsMadeAgainLeavesNoLine) {
  const auto write = [&](MetricsWriter& writer, int64_t step) {
    writer.write(step, {{"loss", 1.0}});
    writer.write(step, {{"eval_loss", 2.0}});
  };
  MetricsWriter writer(path_);
  for (int64_t step = 1; step <= 3; ++step) write(writer, step);
  writer.close();
  const std::string whole = read_file(path_);
  MetricsWriter resumed(path_, 2, /*evaluates_again=*/true);
  resumed.write(2, {{"eval_loss", 2.0}});
  write(resumed, 3);
  resumed.close();
  EXPECT_EQ(read_file(path_), whole);
}

TEST_F(MetricsTest, StartsAnewOrWithoutAFile) {
  write_steps(1, 3, /*resumed_after=*/0);
  write_steps(1, 2);
  EXPECT_EQ(read_file(path_),
            "{\"step\": 1, \"loss\": 1.0, \"tokens\": 10}\n{\"step\": 2, \"loss\": 0.5, \"tokens\": 20}\n");
}

TEST_F(MetricsTest, NamesADamagedLine) {
  for (const char* damaged : {"{}\n", "[1]\n", "{\"step\": 1.5}\n", "oops\n{\"step\": 1}\n"}) {
    write_file(path_, damaged);
    try {
      MetricsWriter writer(path_, 5);
      FAIL() << damaged;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(path_ + ":1"), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace temper::reports
